import { expect, test } from "vitest";
import { optionsOf } from "../../bench/simulation/main.ts";
import { simulate } from "../../bench/simulation/simulation.ts";

/** Twenty seconds of two workers, with an outage, timeouts and retries that come within it, and limits that are reached. */
const SIZE = { seconds: 20, workers: 2, "per-second": 500, hosts: 200, webhooks: 2_000, hanging: 0.2 };
const OUTAGE = { "outage-hosts": 20, "outage-from": 3, "outage-until": 15 };
const SETTINGS = {
  DELIVERY_TIMEOUT: "3s",
  DELIVERY_MAX_IN_FLIGHT: "400",
  DELIVERY_MAX_PER_HOST: "8",
  DELIVERY_MAX_PER_WEBHOOK: "6",
  RETRY_INITIAL_DELAY: "1s",
  RETRY_BACKOFF_COEFFICIENT: "1",
};

test("no simulated delivery is lost, no limit of requests in flight exceeded, and what arrived during an outage is claimed soon after it", async () => {
  const { account, measurements, samples } = await simulate(
    optionsOf({ ...SIZE, ...OUTAGE, seed: 1 }, SETTINGS),
  );
  const { arrived, delivered, failed, queued, retrying, held, inTransit } = account;
  expect(arrived).toBeGreaterThan(9_000);
  expect(delivered + failed + queued + retrying + held + inTransit).toBe(arrived);
  expect(delivered).toBeGreaterThan(arrived * 0.6);
  expect(failed).toBeGreaterThan(0);
  expect(measurements.faults).toEqual([]);
  const waiting = samples.map(({ oldestRecovering }) => oldestRecovering);
  expect(Math.max(...waiting)).toBeGreaterThan(1);
  expect(waiting.at(-1)).toBeLessThan(1);
});
