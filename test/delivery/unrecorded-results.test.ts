import fc from "fast-check";
import { expect, onTestFinished, test } from "vitest";
import { InFlightLimit } from "../../src/delivery/limits/in-flight-limit.ts";
import type { Recorded } from "../../src/delivery/recorder.ts";
import { Sender } from "../../src/delivery/sender.ts";
import { SimulatedTime } from "../support/simulation/simulated-time.ts";
import { claimsOf, DELIVERED, OWNER, senderParts } from "./sender-inputs.ts";

/** A sender whose requests are answered, and whose results are recorded, when the test says so. */
async function start(limit: number, deliveries: number) {
  const time = new SimulatedTime();
  const unanswered: (() => void)[] = [];
  const unrecorded: Recorded[] = [];
  const inFlightLimit = new InFlightLimit(limit, () => 0);
  while (inFlightLimit.value < limit) inFlightLimit.adapt(true);
  const sender = new Sender(
    {
      ...senderParts(time.clock),
      post: (_request, outcome) => unanswered.push(() => outcome(DELIVERED)),
      recorder: {
        get unrecorded() {
          return unrecorded.length;
        },
        record: (_result, recorded) => unrecorded.push(recorded),
      },
      limit: inFlightLimit,
    },
    { perHost: deliveries, perWebhook: deliveries },
  );
  onTestFinished(() => sender.close());
  // Each delivery goes to a separate host, so that only the limit of all requests counts.
  const claimed = Array.from({ length: deliveries }, (_, n) => claimsOf(n, 1)).flat();
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
  const sender = await start(1_000, 10_000);
  expect(sender.counts()).toEqual({ inFlight: 1_000, unrecorded: 0 });
  await sender.answer();
  expect(sender.counts()).toEqual({ inFlight: 0, unrecorded: 1_000 });
  await sender.record(200);
  expect(sender.counts()).toEqual({ inFlight: 200, unrecorded: 800 });
  await sender.record(300);
  expect(sender.counts()).toEqual({ inFlight: 500, unrecorded: 500 });
});

test("with a small limit, 128 results may be unrecorded beside the requests in flight, and no more", async () => {
  const sender = await start(64, 10_000);
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
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 1, max: 500 }),
      fc.array(step, { maxLength: 20 }),
      async (limit, steps) => {
        const deliveries = 2_000;
        const sender = await start(limit, deliveries);
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
      },
    ),
    { numRuns: 50 },
  );
  // With a small limit, results wait beside as many requests as may be in flight.
  expect(mostBeyond).toBeGreaterThan(30);
});
