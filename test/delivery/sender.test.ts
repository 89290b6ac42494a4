import fc from "fast-check";
import { expect, test, vi } from "vitest";
import type { ClaimedDelivery } from "../../src/db/queue/claims.ts";
import { InFlightLimit } from "../../src/delivery/limits/in-flight-limit.ts";
import type { Kind } from "../../src/delivery/limits/task.ts";
import { INITIAL_WINDOW } from "../../src/delivery/limits/windows.ts";
import type { Recorded } from "../../src/delivery/recorder.ts";
import { BUSY_FAILING_MS, FAILING_MS, MANY_FAILURES } from "../../src/delivery/sender.ts";
import { type Answer, answerOf, faultOf } from "../support/simulation/receivers.ts";
import { SimulatedTime } from "../support/simulation/simulated-time.ts";
import { claimsOf, DELIVERED, FAILED, OWNER, startSender } from "./sender-parts.ts";

/** A sender whose requests are answered, and whose results are recorded, when the test says so. */
async function startUnanswered(limit: number, deliveries: number) {
  const time = new SimulatedTime();
  const unanswered: (() => void)[] = [];
  const unrecorded: Recorded[] = [];
  const inFlightLimit = new InFlightLimit(limit, () => 0);
  while (inFlightLimit.value < limit) inFlightLimit.adapt(true);
  const sender = startSender(time.clock, {
    post: (_request, outcome) => unanswered.push(() => outcome(DELIVERED)),
    recorder: {
      get unrecorded() {
        return unrecorded.length;
      },
      record: (_result, recorded) => unrecorded.push(recorded),
    },
    limit: inFlightLimit,
  });
  // Each delivery goes to a separate host, so that only the limit of all requests counts.
  const claimed = Array.from({ length: deliveries }, (_, n) => claimsOf(n + 1, 1)).flat();
  await sender.take(claimed, "first", OWNER, 0n);
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

test("after a wave of responses, as many requests start as each batch of recorded results leaves room for", async () => {
  const sender = await startUnanswered(1_000, 2_000);
  expect(sender.counts()).toEqual({ inFlight: 1_000, unrecorded: 0 });
  await sender.answer();
  expect(sender.counts()).toEqual({ inFlight: 0, unrecorded: 1_000 });
  await sender.record(200);
  expect(sender.counts()).toEqual({ inFlight: 200, unrecorded: 800 });
  await sender.record(300);
  expect(sender.counts()).toEqual({ inFlight: 500, unrecorded: 500 });
});

test("with a small limit, 128 results may be unrecorded beside the requests in flight, and no more", async () => {
  const sender = await startUnanswered(64, 300);
  for (const unrecorded of [64, 128]) {
    expect(sender.counts().inFlight).toBe(64);
    await sender.answer();
    expect(sender.counts().unrecorded).toBe(unrecorded);
  }
  expect(sender.counts().inFlight).toBe(0);
  await sender.record(1);
  expect(sender.counts()).toEqual({ inFlight: 64, unrecorded: 127 });
});

/** How many percent of the requests in flight are answered, and of the unrecorded results recorded. */
const step = fc.record({ answered: fc.nat({ max: 100 }), recorded: fc.nat({ max: 100 }) });
const share = (of: number, percent: number) => Math.round((of * percent) / 100);

test("requests in flight and unrecorded results are together no more than may be in flight, or 200, and all are sent in the end", async () => {
  let mostBeyond = 0;
  const limits = fc.integer({ min: 1, max: 300 });
  await fc.assert(
    fc.asyncProperty(limits, fc.array(step, { maxLength: 12 }), async (limit, steps) => {
      const deliveries = 2 * limit + 200;
      const sender = await startUnanswered(limit, deliveries);
      let answered = 0;
      const expectBounded = () => {
        const { inFlight, unrecorded } = sender.counts();
        expect(inFlight + unrecorded).toBeLessThanOrEqual(Math.max(200, limit));
        mostBeyond = Math.max(mostBeyond, inFlight + unrecorded - limit);
        return { inFlight, unrecorded };
      };
      for (const { answered: percent, recorded } of steps) {
        const n = share(expectBounded().inFlight, percent);
        answered += n;
        await sender.answer(n);
        await sender.record(share(expectBounded().unrecorded, recorded));
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
  // With a small limit, results wait beside as many requests as may be in flight.
  expect(mostBeyond).toBeGreaterThan(30);
});

const ATTEMPTS = 16;
const LIMIT = 8;
/** The response time of the other receivers, which is the longest wait for the limit, in milliseconds. */
const OTHERS_MS = 40;

/**
 * The times between attempts to a webhook whose receiver answers at once, in milliseconds.
 *
 * @param isBusy whether deliveries of other webhooks wait for the limit of requests in flight meanwhile
 * @param succeeds whether an attempt succeeds, by its number from 0. None by default
 */
async function pauses(
  kind: Kind,
  isBusy: boolean,
  succeeds: (attempt: number) => boolean = () => false,
): Promise<number[]> {
  const time = new SimulatedTime();
  const { clock } = time;
  const times: number[] = [];
  const sender = startSender(
    clock,
    {
      post(_request, outcome, _gate, { webhook }) {
        if (webhook.id !== 1n) return clock.after(OTHERS_MS, () => outcome(DELIVERED));
        const attempt = times.push(time.now) - 1;
        clock.after(0, () => outcome(succeeds(attempt) ? DELIVERED : FAILED));
      },
      limit: new InFlightLimit(LIMIT, () => 1),
    },
    { perHost: LIMIT, perWebhook: LIMIT },
  );
  if (isBusy) {
    // Fewer webhooks than the limit, so that the next slot is that of the one which fails.
    const others = Array.from({ length: 5 }, (_, n) => claimsOf(n + 2, 300)).flat();
    await sender.take(others, "first", OWNER, 0n);
  }
  await sender.take(claimsOf(1, ATTEMPTS), kind, OWNER, 0n);
  await time.run(10_000);
  expect(times).toHaveLength(ATTEMPTS);
  return times.slice(1).map((at, n) => at - (times[n] as number));
}

test("a webhook whose first attempts fail one after another pauses longer, while others wait for the limit of requests in flight", async () => {
  const between = await pauses("first", true);
  // The first ones are in flight together.
  for (const ms of between.slice(INITIAL_WINDOW, MANY_FAILURES - 1)) {
    expect(ms).toBeGreaterThanOrEqual(FAILING_MS);
    expect(ms).toBeLessThanOrEqual(FAILING_MS + OTHERS_MS);
  }
  const long = between.slice(MANY_FAILURES - 1);
  expect(long.length).toBeGreaterThan(5);
  expect(Math.min(...long)).toBeGreaterThanOrEqual(BUSY_FAILING_MS);
  expect(Math.max(...long)).toBeLessThanOrEqual(BUSY_FAILING_MS + OTHERS_MS);
});

test.each([
  ["its failures are of retries", () => pauses("retry", true)],
  ["no other delivery waits for the limit", () => pauses("first", false)],
  ["some of its attempts succeed", () => pauses("first", true, (n) => n % (MANY_FAILURES - 1) === 0)],
])("a webhook that fails pauses no longer than usual if %s", async (_when, measured) => {
  const between = await measured();
  expect(Math.max(...between)).toBeGreaterThanOrEqual(FAILING_MS);
  expect(Math.max(...between)).toBeLessThanOrEqual(FAILING_MS + OTHERS_MS);
});

test("nothing starts while new connections wait for long, or the outbound proxy is away, and a closed sender looks no more", async () => {
  const time = new SimulatedTime();
  const handshakes = { backlogMs: 251 };
  const proxy = { isThere: false, mayStart: () => proxy.isThere };
  let posted = 0;
  const sender = startSender(time.clock, { post: () => posted++, handshakes, proxy });
  await sender.take(claimsOf(1, 9), "first", OWNER, 0n);
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

test("once a result matches no claim, nothing starts before the lease has been read again", async () => {
  const time = new SimulatedTime();
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
    lease: { isValid: () => isValid, hasLost: () => false, settle: () => {}, verify },
  });
  await sender.take(claimsOf(1, 20), "first", OWNER, 0n);
  await time.run(1_000);
  // Some start between the response and its record.
  expect(posted).toBeLessThanOrEqual(2 * INITIAL_WINDOW);
});

test("deliveries whose webhook was paused or changed since their claim are given back", async () => {
  const time = new SimulatedTime();
  let [posted, released] = [0, 0];
  const sender = startSender(time.clock, {
    post: () => posted++,
    watch: { isFresh: () => true, revision: 2n, stoppedSince: async () => new Set([1n]) },
    unsent: {
      async release(claims) {
        released += claims.length;
      },
      endFiltered: async () => {},
    },
  });
  await sender.take([...claimsOf(1, 3), ...claimsOf(2, 2)], "first", OWNER, 1n);
  await time.run(1_000);
  expect([posted, released]).toEqual([2, 3]);
});

test("the webhooks of an endpoint share its requests in flight", async () => {
  const time = new SimulatedTime();
  let posted = 0;
  const sender = startSender(time.clock, { post: () => posted++ }, { perHost: 100, perWebhook: 4 });
  const ofEndpoint = [1, 2].flatMap((id) =>
    claimsOf(id, 9).map((each) => ({ ...each, webhook: { ...each.webhook, endpointId: "endpoint" } })),
  );
  await sender.take(ofEndpoint, "first", OWNER, 0n);
  await time.run(1_000);
  expect(posted).toBe(4);
});

test.each<[string, Answer, string | null, number]>([
  ["that succeeds keeps no signature", answerOf(200, 1), null, 0],
  ["that is refused with 401 keeps its signature and replaces the access token", answerOf(401, 1), "s", 1],
  ["without a response keeps its signature", faultOf("webhook", 1), "s", 0],
  ["that reaches no receiver keeps no signature", faultOf("host", 1), null, 0],
])("an attempt %s", async (_what, { outcome }, signature, refusals) => {
  const time = new SimulatedTime();
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
  await sender.take([{ ...delivery, webhook }], "first", OWNER, 0n);
  await time.run(1_000);
  expect([kept, onUnauthorized.mock.calls.length]).toEqual([[signature], refusals]);
});
