import fc from "fast-check";
import pino from "pino";
import { expect, test } from "vitest";
import { WebhookWatch } from "../../../src/delivery/claims/webhook-watch.ts";
import { WorkerLease } from "../../../src/delivery/claims/worker-lease.ts";
import { randomOf } from "../../support/random.ts";
import { SimulatedTime } from "../../support/simulation/simulated-time.ts";
import { claimsOf, DELIVERED, OWNER, startSender } from "../sender-parts.ts";

/** What the service promises: no POST starts later than this after the change was answered, in milliseconds. */
const PROMISED_MS = 1_000;
const LEASE_MS = 4_000;
const UNTIL_MS = 40_000;
const WEBHOOKS = 4;
/** The first and the third belong to the operator, the others to a customer each. */
const customerOf = (webhook: number) => (webhook % 2 === 1 ? null : `customer ${webhook}`);

const log = pino({ level: "silent" });

/** What happens to a worker, at times in milliseconds. */
interface Story {
  seed: number;
  claims: { at: number; webhook: number; deliveries: number }[];
  /** Changes by another process. A replacement is one of the URL, a secret, a key pair or credentials. */
  changes: { at: number; webhook: number; kind: "pause" | "replace" }[];
  /** The database does not answer for so long. */
  outages: { at: number; ms: number }[];
  /** The machine is suspended for so long: other machines and the database are not. */
  suspensions: { at: number; ms: number }[];
  /** The longest that an answer of the database, a connection and a response may take. */
  databaseMs: number;
  connectMs: number;
  responseMs: number;
  /** The part of the readings and renewals that fail. */
  failing: number;
}

/** A POST that started. */
interface Start {
  webhook: number;
  at: number;
  /** Since its webhook was paused, or what the request shows was replaced. Undefined if that did not happen. */
  afterChangeMs: number | undefined;
  /** The time left of the lease as the database has it; negative once the worker's row is deleted. */
  leaseLeftMs: number;
}

/** Tells the story to a sender, a watch and a lease under a simulated clock. */
async function tell(told: Partial<Story>) {
  const story: Story = { ...QUIET, ...told };
  const time = new SimulatedTime();
  const { clock } = time;
  const random = randomOf(story.seed);
  const isAway = () => story.outages.some(({ at, ms }) => time.now >= at && time.now < at + ms);
  /** The changes until now, with their times by the wall clock. */
  const changes: { webhook: number; kind: "pause" | "replace"; wall: number }[] = [];
  const of = (webhook: number, kind: "pause" | "replace") =>
    changes.filter((change) => change.webhook === webhook && change.kind === kind);
  const revisionOf = (webhook: number) => BigInt(1 + of(webhook, "replace").length);
  const isStopped = ({ id, revision }: { id: bigint; revision: bigint }) =>
    of(Number(id), "pause").length > 0 || revision !== revisionOf(Number(id));
  /** A statement sees the database as it is at some moment between its start and its answer. */
  const answer = async <T>(look: () => T, mayFail = true): Promise<T> => {
    const ms = random() * story.databaseMs;
    const before = random() * ms;
    await clock.wait(before);
    while (!mayFail && isAway()) await clock.wait(10);
    if (mayFail && (isAway() || random() < story.failing))
      throw new Error("Connection terminated unexpectedly");
    const seen = look();
    await clock.wait(ms - before);
    return seen;
  };
  /** The ends of leases by worker id, by the wall clock; without those that another worker has ended. */
  const leases = new Map<number, number>();
  let workers = 0;
  const lease = new WorkerLease({
    clock,
    log,
    leaseMs: LEASE_MS,
    stopping: new AbortController().signal,
    add: () =>
      answer(() => {
        workers += 1;
        leases.set(workers, clock.wall() + LEASE_MS);
        return workers;
      }, false),
    renew: (id) => answer(() => leases.has(id) && leases.set(id, clock.wall() + LEASE_MS) !== undefined),
    remove: async (id) => void leases.delete(id),
  });
  let [held, released] = [0, 0];
  /** The webhooks whose changes are read. */
  const read: { at: number; webhook: number }[] = [];
  const watch = new WebhookWatch({
    clock,
    log,
    async openFeed() {
      let seen: number | undefined;
      const look = () =>
        answer(() => {
          const since = seen === undefined ? undefined : changes.slice(seen);
          seen = changes.length;
          return since ? new Set(since.map((each) => customerOf(each.webhook))) : "all";
        });
      return { look, close: async () => {} };
    },
    loadStopped(some) {
      for (const { id } of some) read.push({ at: time.now, webhook: Number(id) });
      return answer(() => some.filter(isStopped).map(({ id }) => id), false);
    },
    queued: () => {},
    held: () => sender.held(),
    stopped: (ids) => sender.stop(ids),
  });
  const starts: Start[] = [];
  const sender = startSender(clock, {
    post(_request, outcome, gate, { webhook: { id, revision }, token }) {
      clock.after(random() * story.connectMs, () => {
        if (!gate.maySend()) return gate.withdrawn();
        const webhook = Number(id);
        const since = [...of(webhook, "pause"), ...of(webhook, "replace").slice(Number(revision) - 1)];
        const wall = clock.wall();
        starts.push({
          webhook,
          at: time.now,
          afterChangeMs: since.length === 0 ? undefined : wall - Math.min(...since.map((each) => each.wall)),
          leaseLeftMs: (leases.get(token.workerId) ?? Number.NEGATIVE_INFINITY) - wall,
        });
        clock.after(random() * story.responseMs, () => outcome(DELIVERED));
      });
    },
    lease,
    watch,
    async release(_workerId, deliveries) {
      released += deliveries.length;
    },
    contents: {
      room: 1_000,
      async hold(deliveries) {
        held += deliveries.length;
        return [];
      },
      of: () => ({ payload: "{}", userId: "" }),
      release: () => {
        held -= 1;
      },
    },
  });
  const never = new AbortController().signal;
  for (const { at, webhook, deliveries } of story.claims) {
    const claim = (workerId: number) =>
      answer(() => {
        const isClaimable = of(webhook, "pause").length === 0 && leases.has(workerId);
        const customer = customerOf(webhook);
        const claimed = claimsOf(webhook, deliveries, { revision: revisionOf(webhook), workerId, customer });
        return { deliveries: isClaimable ? claimed : [], touched: claimed.length };
      }, false);
    clock.after(at, async () => {
      const asOf = { revision: watch.revision, at: clock.now() };
      const claimed = await lease.claim(claim, never);
      await sender.take(claimed.deliveries, "first", () => OWNER, asOf);
    });
  }
  for (const { at, webhook, kind } of story.changes)
    clock.after(at, () => void changes.push({ webhook, kind, wall: clock.wall() }));
  for (const { at, ms } of story.suspensions) clock.after(at, () => time.suspend(ms));
  // Another worker.
  clock.every(100, () => {
    for (const [id, until] of leases) if (until < clock.wall()) leases.delete(id);
  });
  const releasedBy = new Map<number, number>();
  clock.every(1_000, () => releasedBy.set(Math.round(time.now), released));
  await time.run(UNTIL_MS);
  sender.withdraw(OWNER);
  await time.run(2 * UNTIL_MS);
  const closed = Promise.all([watch.close(), lease.close()]);
  // What the database is being asked is answered before they have closed.
  await time.run(3 * UNTIL_MS);
  await closed;
  return { starts, held, read, releasedBy };
}

/** Nothing happens, and all is fast. */
const QUIET: Story = {
  seed: 1,
  claims: [],
  changes: [],
  outages: [],
  suspensions: [],
  databaseMs: 5,
  connectMs: 5,
  responseMs: 60,
  failing: 0,
};

const at = fc.integer({ min: 0, max: 5_000 });
const webhook = fc.integer({ min: 1, max: WEBHOOKS });
const period = fc.record({ at, ms: fc.constantFrom(300, 1_500, 5_000, 3_600_000) });
const claim = fc.record({ at, webhook, deliveries: fc.integer({ min: 1, max: 200 }) });
const change = fc.record({ at, webhook, kind: fc.constantFrom("pause" as const, "replace" as const) });
const stories: fc.Arbitrary<Story> = fc.record({
  seed: fc.integer(),
  claims: fc.array(claim, { minLength: 1, maxLength: 8 }),
  changes: fc.array(change, { minLength: 1, maxLength: WEBHOOKS }),
  outages: fc.array(fc.record({ at, ms: fc.constantFrom(300, 1_500, 5_000) }), { maxLength: 1 }),
  suspensions: fc.array(period, { maxLength: 1 }),
  databaseMs: fc.constantFrom(1, 50, 400, 1_000, 2_000),
  connectMs: fc.constantFrom(0, 100, 2_000),
  responseMs: fc.constantFrom(10, 500),
  failing: fc.constantFrom(0, 0, 0.3),
});

const CLAIMS = [1, 2].map((webhook) => ({ at: 0, webhook, deliveries: 200 }));
const paused = (at: number) => [{ at, webhook: 1, kind: "pause" as const }];
/** What chance brings too rarely. */
const EXAMPLES: Partial<Story>[] = [
  // The machine is suspended for less than its lease before it has read a change.
  ...Array.from({ length: 10 }, (_, n) => ({
    claims: CLAIMS,
    changes: paused(1_000 + 30 * n),
    suspensions: [{ at: 1_010 + 30 * n, ms: 3_000 }],
  })),
  // Claims that see the webhook before it is paused are answered after that has been read.
  {
    claims: Array.from({ length: 30 }, (_, n) => ({ at: 10 * n, webhook: 1, deliveries: 20 })),
    changes: paused(400),
    databaseMs: 900,
  },
];

test("no POST starts a second after its webhook was paused or replaced, or after the lease, however late the database answers and however long the machine is suspended", async () => {
  let [started, afterChange, suspended] = [0, 0, 0];
  await fc.assert(
    fc.asyncProperty(stories, async (story) => {
      const { starts } = await tell(story);
      for (const { afterChangeMs, leaseLeftMs } of starts) {
        if (afterChangeMs !== undefined) expect(afterChangeMs).toBeLessThan(PROMISED_MS);
        expect(leaseLeftMs).toBeGreaterThan(0);
      }
      started += starts.length;
      afterChange += starts.filter(({ afterChangeMs }) => afterChangeMs !== undefined).length;
      suspended += story.suspensions.flatMap((each) => starts.filter((start) => start.at > each.at)).length;
    }),
    { numRuns: 100, examples: EXAMPLES.map((each) => [{ ...QUIET, ...each }]) },
  );
  expect(started).toBeGreaterThan(1_000);
  // Some start within the second, so that the bound is tried.
  expect(afterChange).toBeGreaterThan(0);
  expect(suspended).toBeGreaterThan(0);
});

const of = (starts: readonly Start[], webhook: number) => starts.filter((each) => each.webhook === webhook);

test("webhooks that are not paused receive their deliveries, and all deliveries of paused webhooks are released", async () => {
  const { starts, held } = await tell({ claims: CLAIMS, changes: paused(500) });
  expect(of(starts, 2)).toHaveLength(200);
  expect(of(starts, 1).length).toBeLessThan(200);
  expect(held).toBe(0);
});

test("a change of one customer's webhook has no other's read", async () => {
  const claims = Array.from({ length: 40 }, (_, n) => ({ at: 50 * n, webhook: 1 + (n % 4), deliveries: 20 }));
  const changes = Array.from({ length: 20 }, (_, n) => ({
    at: 105 + 100 * n,
    webhook: 2,
    kind: "replace" as const,
  }));
  const { read } = await tell({ claims, changes });
  // The first look does not know what has changed before.
  expect(new Set(read.filter(({ at }) => at > 100).map(({ webhook }) => webhook))).toEqual(new Set([2]));
});

test("nothing is sent from a second on while changes cannot be read, and all of it afterwards", async () => {
  const { starts, releasedBy } = await tell({ claims: CLAIMS, outages: [{ at: 500, ms: 2_500 }] });
  expect(starts.filter((each) => each.at > 500 + PROMISED_MS && each.at < 3_000)).toEqual([]);
  // What was connecting is given back.
  expect(starts.length + (releasedBy.get(UNTIL_MS) ?? 0)).toBe(400);
});

test("deliveries are released once after a change of their webhook, though an earlier request still has no response", async () => {
  const { releasedBy } = await tell({
    claims: [0, 1_500].map((at) => ({ at, webhook: 1, deliveries: 10 })),
    // Those of the other webhook have the watch look again.
    changes: [500, 2_500, 3_500].map((at, n) => ({ at, webhook: n === 0 ? 1 : 2, kind: "replace" })),
    responseMs: 1e9,
  });
  // Two are in flight.
  expect([1_000, 2_000, 5_000].map((at) => releasedBy.get(at))).toEqual([8, 8, 8]);
});
