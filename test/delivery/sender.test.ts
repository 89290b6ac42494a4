import fc from "fast-check";
import pino from "pino";
import { beforeEach, expect, test, vi } from "vitest";
import { ClaimOwner } from "../../src/delivery/claim-owner.ts";
import { MAX_UNRECORDED } from "../../src/delivery/limits/start-limits.ts";
import { INITIAL_WINDOW } from "../../src/delivery/limits/windows.ts";
import type { Recorded } from "../../src/delivery/recorder.ts";
import type { Outcome } from "../../src/delivery/request/outcome.ts";
import type { Gate } from "../../src/delivery/request/post.ts";
import type { ClaimedDelivery } from "../../src/queue/claims.ts";
import type { AttemptResult } from "../../src/queue/results.ts";
import { type Answer, answerOf, faultOf } from "../support/simulation/receivers.ts";
import { SimulatedTime } from "../support/simulation/simulated-time.ts";
import { claimsOf, DELIVERED, OWNER, startSender } from "./sender-parts.ts";

let time: SimulatedTime;
beforeEach(() => {
  time = new SimulatedTime();
});

/** A sender whose requests are answered, and whose results are recorded, when the test says so. */
async function startUnanswered(limit: number, deliveries: number) {
  const unanswered: (() => void)[] = [];
  const unrecorded: Recorded[] = [];
  const parts = {
    post: (_request: unknown, outcome: (outcome: Outcome) => void) =>
      unanswered.push(() => outcome(DELIVERED)),
    recorder: {
      get unrecorded() {
        return unrecorded.length;
      },
      record: (_result: unknown, recorded: Recorded) => unrecorded.push(recorded),
    },
  };
  const sender = startSender(time.clock, parts, { max: limit, perHost: 4, perWebhook: 4 });
  // Each delivery goes to a separate host, so that only the limit of all requests counts.
  const claimed = Array.from({ length: deliveries }, (_, n) => claimsOf(n + 1, 1)).flat();
  await sender.take(claimed, "first", () => OWNER, { revision: 0n, at: 0 });
  const settle = () => time.run(time.now + 1);
  await settle();
  return {
    counts: () => ({ inFlight: sender.inFlight, unrecorded: unrecorded.length }),
    async answer(n = unanswered.length) {
      for (const respond of unanswered.splice(0, n)) respond();
      await settle();
    },
    async record(n = unrecorded.length) {
      for (const recorded of unrecorded.splice(0, n)) recorded("delivered");
      await settle();
    },
  };
}

/** How many percent of the requests in flight are answered, and of the unrecorded results recorded. */
const step = fc.record({ answered: fc.nat({ max: 100 }), recorded: fc.nat({ max: 100 }) });
const share = (of: number, percent: number) => Math.round((of * percent) / 100);

test("no more requests are in flight than allowed, none starts beside 128 unrecorded results, and as many start as there is room for", async () => {
  const limits = fc.integer({ min: 1, max: 300 });
  await fc.assert(
    fc.asyncProperty(limits, fc.array(step, { maxLength: 12 }), async (limit, steps) => {
      const deliveries = 2 * limit + 200;
      const sender = await startUnanswered(limit, deliveries);
      let answered = 0;
      const expectBounded = () => {
        const { inFlight, unrecorded } = sender.counts();
        expect(inFlight).toBeLessThanOrEqual(limit);
        expect(inFlight + unrecorded).toBeLessThanOrEqual(Math.max(200, limit));
        const isFull =
          inFlight === limit || unrecorded >= MAX_UNRECORDED || inFlight + unrecorded >= Math.max(200, limit);
        expect(isFull || answered + inFlight === deliveries).toBe(true);
        return { inFlight, unrecorded };
      };
      for (const { answered: percent, recorded } of steps) {
        const before = expectBounded();
        const n = share(before.inFlight, percent);
        answered += n;
        await sender.answer(n);
        const { inFlight, unrecorded } = expectBounded();
        if (before.unrecorded >= MAX_UNRECORDED) expect(inFlight).toBe(before.inFlight - n);
        await sender.record(share(unrecorded, recorded));
      }
      for (let left = expectBounded(); left.inFlight + left.unrecorded > 0; left = expectBounded()) {
        answered += left.inFlight;
        await sender.answer();
        await sender.record();
      }
      expect(answered).toBe(deliveries);
    }),
    { numRuns: 30 },
  );
});

test("nothing starts while new connections wait for long, or the outbound proxy is away, and a closed sender looks no more", async () => {
  const handshakes = { backlogMs: 251 };
  const proxy = { isThere: false, mayStart: () => proxy.isThere };
  let posted = 0;
  const sender = startSender(time.clock, { post: () => posted++, handshakes, proxy });
  await sender.take(claimsOf(1, 9), "first", () => OWNER, { revision: 0n, at: 0 });
  proxy.isThere = true;
  await time.run(1_000);
  handshakes.backlogMs = 0;
  proxy.isThere = false;
  await time.run(2_000);
  expect(posted).toBe(0);
  sender.close();
  proxy.isThere = true;
  await time.run(3_000);
  expect(posted).toBe(0);
});

test("while the outbound proxy is unavailable, one request tries it at a time", async () => {
  let tries = 0;
  const proxy = { mayStart: () => tries-- > 0 };
  let posted = 0;
  const sender = startSender(time.clock, { post: () => posted++, proxy });
  await sender.take(claimsOf(1, 9), "first", () => OWNER, { revision: 0n, at: 0 });
  await time.run(1_000);
  expect(posted).toBe(0);
  tries = 1;
  await time.run(2_000);
  expect(posted).toBe(1);
});

test("once a result matches no claim, nothing starts before the lease has been read again", async () => {
  let [posted, isValid] = [0, true];
  const verify = () => {
    isValid = false;
  };
  const sender = startSender(time.clock, {
    post(_request, outcome) {
      posted += 1;
      time.clock.after(1, () => outcome(DELIVERED));
    },
    recorder: { unrecorded: 0, record: (_result, recorded) => time.clock.soon(() => recorded(undefined)) },
    lease: { isValid: () => isValid, hasLost: () => false, retire: () => {}, settle: () => {}, verify },
  });
  await sender.take(claimsOf(1, 20), "first", () => OWNER, { revision: 0n, at: 0 });
  await time.run(1_000);
  // Some start between the response and its record.
  expect(posted).toBeLessThanOrEqual(2 * INITIAL_WINDOW);
});

test.each<[string, Answer, string | null, number]>([
  ["that succeeds keeps no signature", answerOf(200, 1), null, 0],
  ["that is refused with 401 keeps its signature and replaces the access token", answerOf(401, 1), "s", 1],
  ["without a response keeps its signature", faultOf("webhook", 1), "s", 0],
  ["that reaches no receiver keeps no signature", faultOf("host", 1), null, 0],
])("an attempt %s", async (_what, { outcome }, signature, refusals) => {
  const kept: unknown[] = [];
  const onUnauthorized = vi.fn();
  const sender = startSender(time.clock, {
    post: (_request, ended) => ended(outcome),
    sign: () => ({ "webhook-id": "", "webhook-timestamp": "", "webhook-signature": "s" }),
    additions: () => ({ headers: [], onUnauthorized }),
    recorder: { unrecorded: 0, record: (result) => kept.push(result.signature) },
  });
  const [delivery] = claimsOf(1, 1) as [ClaimedDelivery];
  const webhook = { ...delivery.webhook, requestSettings: Buffer.alloc(1) };
  await sender.take([{ ...delivery, webhook }], "first", () => OWNER, { revision: 0n, at: 0 });
  await time.run(1_000);
  expect([kept, onUnauthorized.mock.calls.length]).toEqual([[signature], refusals]);
});

test.each([
  ["an outage, which other parts log", "Connection terminated unexpectedly", []],
  ["another error, which is logged", "permission denied", ["permission denied"]],
])(
  "claims whose release fails for %s end for their owners, and the worker's id is retired",
  async (_why, message, logged) => {
    const told: string[] = [];
    const lines: string[] = [];
    const sender = startSender(time.clock, {
      post: () => {},
      log: pino({}, { write: (line: string) => void lines.push(JSON.parse(line).err.message) }),
      lease: {
        isValid: () => true,
        hasLost: () => false,
        verify: () => {},
        settle: (id, n = 1) => told.push(`settle ${id} ${n}`),
        retire: (id) => told.push(`retire ${id}`),
      },
      release: () => Promise.reject(new Error(message)),
    });
    const owner = new ClaimOwner(1);
    await sender.take(claimsOf(1, 2, { workerId: 7 }), "first", () => owner, { revision: 0n, at: 0 });
    sender.withdraw(owner);
    await sender.ended();
    expect(told).toEqual(["retire 7", "settle 7 2"]);
    expect([owner.open, owner.hasReturned]).toEqual([0, true]);
    expect(lines).toEqual(logged);
  },
);

/** The response of a receiver that wants no requests for ten seconds. */
const REFUSED: Outcome = {
  ...DELIVERED,
  delivered: false,
  status: 429,
  retryAfterMs: 10_000,
  wish: { holdMs: 10_000, isRefusal: true, statedRate: null, remaining: null },
};

test("a refusal releases what waits for its webhook, keeps back what has no connection yet, and leaves others alone", async () => {
  const [released, results]: [string[], AttemptResult[]] = [[], []];
  const requests: { id: string; webhookId: bigint; answer: (outcome: Outcome) => void; gate: Gate }[] = [];
  const sender = startSender(
    time.clock,
    {
      post: (_request, answer, gate, { id, webhook }) =>
        requests.push({ id, webhookId: webhook.id, answer, gate }),
      release: async (_workerId, some) => void released.push(...some.map(({ id }) => id)),
      recorder: { unrecorded: 0, record: (result) => results.push(result) },
    },
    { max: 64, perHost: 8, perWebhook: 8 },
  );
  const take = (id: number, deliveries: number, at: number) =>
    sender.take(claimsOf(id, deliveries), "first", () => OWNER, { revision: 0n, at });
  await take(1, 6, 0);
  await take(2, 2, 0);
  await time.run(1);
  const [first, second] = requests.filter(({ webhookId }) => webhookId === 1n);
  const other = requests.find(({ webhookId }) => webhookId === 2n);
  expect(first?.gate.maySend()).toBe(true);
  first?.answer(REFUSED);
  expect(released).toEqual(["2", "3", "4", "5"]);
  expect([second?.gate.maySend(), other?.gate.maySend()]).toEqual([false, true]);
  second?.gate.withdrawn();
  expect(released).toContain(second?.id);
  expect(results).toMatchObject([
    { deliveryId: "0", status: 429, wish: { webhookId: 1n, holdMs: 10_000, acceptedRate: null } },
  ]);
  // A claim that began before the hold was stored.
  await take(1, 1, time.now);
  await time.run(time.now + 100);
  expect(released).toHaveLength(6);
  await time.run(10_100);
  await take(1, 6, 0);
  await time.run(time.now + 1);
  // One at a time.
  expect(requests.filter(({ webhookId }) => webhookId === 1n)).toHaveLength(3);
});

test("another process's hold releases what waits, but not test events; a later claim is sent", async () => {
  const [released, sent]: [string[], string[]] = [[], []];
  const sender = startSender(time.clock, {
    post: (_request, _answer, _gate, { id }) => sent.push(id),
    release: async (_workerId, some) => void released.push(...some.map(({ id }) => id)),
    contents: {
      room: 1_000,
      hold: async () => [],
      of: ({ id }) => ({ payload: "{}", userId: "", test: id === "3" }),
      release: () => {},
    },
  });
  const take = (deliveries: readonly ClaimedDelivery[], at: number) =>
    sender.take(deliveries, "first", () => OWNER, { revision: 0n, at });
  await take(claimsOf(1, 5), 0);
  await time.run(1);
  sender.hold(1n, 60_000);
  expect([sent, released]).toEqual([
    ["0", "1"],
    ["2", "4"],
  ]);
  await time.run(10);
  await take(claimsOf(1, 1), 0);
  expect(released).toEqual(["2", "4", "0"]);
  await take(claimsOf(1, 1), time.now);
  expect(released).toHaveLength(3);
});
