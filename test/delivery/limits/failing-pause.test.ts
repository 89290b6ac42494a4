import { expect, onTestFinished, test } from "vitest";
import type { ClaimedDelivery } from "../../../src/db/queue/claims.ts";
import { InFlightLimit } from "../../../src/delivery/limits/in-flight-limit.ts";
import type { Kind } from "../../../src/delivery/limits/task.ts";
import { INITIAL_WINDOW } from "../../../src/delivery/limits/windows.ts";
import { BUSY_FAILING_MS, FAILING_MS, MANY_FAILURES, Sender } from "../../../src/delivery/sender.ts";
import { SimulatedTime } from "../../support/simulation/simulated-time.ts";
import { claimsOf, DELIVERED, FAILED, OWNER, senderParts } from "../sender-inputs.ts";

const ATTEMPTS = 24;
const LIMIT = 8;
/** The response time of the other receivers, which is the longest wait for the limit, in milliseconds. */
const OTHERS_MS = 10;

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
  let posted: ClaimedDelivery | undefined;
  const { contents, ...parts } = senderParts(clock);
  const sender = new Sender(
    {
      ...parts,
      contents: {
        ...contents,
        of(delivery) {
          posted = delivery;
          return { payload: "{}", userId: "" };
        },
      },
      post(_request, outcome) {
        if (posted?.webhook.id !== 1n) return clock.after(OTHERS_MS, () => outcome(DELIVERED));
        const attempt = times.push(time.now) - 1;
        clock.after(0, () => outcome(succeeds(attempt) ? DELIVERED : FAILED));
      },
      limit: new InFlightLimit(LIMIT, () => 1),
    },
    { perHost: LIMIT, perWebhook: LIMIT },
  );
  onTestFinished(() => sender.close());
  if (isBusy) {
    // Fewer webhooks than the limit, so that the next slot is that of the one which fails.
    const others = Array.from({ length: 5 }, (_, n) => claimsOf(n + 2, 2_000)).flat();
    await sender.take(others, "first", OWNER, 0n);
  }
  await sender.take(claimsOf(1, ATTEMPTS), kind, OWNER, 0n);
  await time.run(60_000);
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
  expect(long.length).toBeGreaterThan(10);
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
