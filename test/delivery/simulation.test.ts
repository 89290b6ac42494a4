import { expect, test } from "vitest";
import { optionsOf } from "../../bench/simulation/main.ts";
import { type Sample, type SimulationResult, simulate } from "../../bench/simulation/simulation.ts";

/** A minute of two workers, with timeouts and retries that come within it, and limits that are reached. */
const SIZE = { seconds: 60, workers: 2, "per-second": 500, hosts: 200, webhooks: 2_000, hanging: 0.2 };
const OUTAGE = { "outage-hosts": 4, "outage-from": 20, "outage-until": 30 };
const SHORT = { seconds: 10, "outage-hosts": 4, "outage-from": 3, "outage-until": 5 };
const SETTINGS = {
  DELIVERY_TIMEOUT: "3s",
  DELIVERY_MAX_IN_FLIGHT: "400",
  DELIVERY_MAX_PER_HOST: "8",
  DELIVERY_MAX_PER_WEBHOOK: "6",
  RETRY_INITIAL_DELAY: "4s",
  RETRY_BACKOFF_COEFFICIENT: "2",
};

const first = simulate(optionsOf({ ...SIZE, ...OUTAGE, seed: 1 }, SETTINGS));
/** Ten seconds, with an outage and retries. */
const short = (seed: number): Promise<SimulationResult> =>
  simulate(optionsOf({ ...SIZE, ...SHORT, seed }, { ...SETTINGS, RETRY_INITIAL_DELAY: "1s" }));
const most = (samples: readonly Sample[], of: (sample: Sample) => number) => Math.max(...samples.map(of));

test("no simulated delivery is lost", async () => {
  const { arrived, delivered, failed, queued, retrying, held, inTransit } = (await first).account;
  expect(arrived).toBeGreaterThan(29_000);
  expect(delivered + failed + queued + retrying + held + inTransit).toBe(arrived);
  expect(delivered).toBeGreaterThan(arrived * 0.65);
  expect(failed).toBeGreaterThan(0);
});

test("the limits of a simulated worker hold: in flight, recent ones, to a host, to a webhook, and a quarter for probes", async () => {
  const { samples, measurements } = await first;
  expect(measurements.faults).toEqual([]);
  expect(most(samples, ({ maxProbes }) => maxProbes)).toBeGreaterThan(40);
});

test("healthy hosts' deliveries start within a minute beside hosts that hang and fail, and retries soon after they are due", async () => {
  const { samples, measurements } = await first;
  expect(most(samples, ({ oldestHealthy }) => oldestHealthy)).toBeLessThan(60);
  expect(measurements.wait.healthy.quantile(0.99)).toBeLessThan(1_000);
  expect(measurements.retryDelay.failing.count).toBeGreaterThan(1_000);
  expect(measurements.retryDelay.failing.quantile(0.5)).toBeLessThan(5_000);
});

test("what arrived at hosts during an outage is claimed soon after it", async () => {
  const { samples } = await first;
  expect(most(samples, ({ oldestRecovering }) => oldestRecovering)).toBeGreaterThan(1);
  expect(samples.at(-1)?.oldestRecovering).toBeLessThan(1);
});

test("claims that find little leave the database most of its time", async () => {
  expect((await first).claiming).toBeLessThan(0.4);
});

test("the same seed gives the same simulation, and another seed another one", async () => {
  const [one, same, other] = [await short(1), await short(1), await short(2)];
  expect(one.account.arrived).toBeGreaterThan(4_500);
  expect(same.account).toEqual(one.account);
  expect(same.samples).toEqual(one.samples);
  expect(other.samples).not.toEqual(one.samples);
});
