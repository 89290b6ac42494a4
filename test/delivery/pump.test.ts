import { expect, test } from "vitest";
import { INITIAL_WINDOW as FEW } from "../../src/delivery/limits/windows.ts";
import { answerOf } from "../support/simulation/receivers.ts";
import { Scenario } from "../support/simulation/scenario.ts";

/** The polling interval of a lingering pump, in milliseconds. */
const POLL_MS = 250;
/** A response so late that the test does something else first, in milliseconds. */
const LATE_MS = 5_000;
const SETTINGS = { DELIVERY_TIMEOUT: "60s" };

/** One webhook with 50 deliveries, of which a few start at once. */
function start(status = 200, statementMs = 1): Scenario {
  const scenario = new Scenario(
    { one: { answer: () => answerOf(status, LATE_MS) } },
    { settings: SETTINGS, workers: 2, statementMs },
  );
  scenario.add("one", 50);
  return scenario;
}

test("the pump of a later run takes over what waits, and the earlier one ends with its last response", async () => {
  const scenario = start();
  const earlier = scenario.pump(1, { lingers: true });
  await scenario.run(100);
  const later = scenario.pump(2);
  expect(await scenario.until(earlier)).toMatchObject({ sent: FEW, delivered: FEW, end: "superseded" });
  expect(await scenario.until(later)).toMatchObject({ sent: 50 - FEW, end: "done" });
});

test("a delivery that a later pump took over and that fails is retried by the later run", async () => {
  const scenario = start(500);
  void scenario.pump(1, { lingers: true });
  await scenario.run(100);
  const later = scenario.pump(2);
  await scenario.until(later, 600_000);
  const retries = [1, 2].map((run) => {
    scenario.retries.assignOneGroup(run);
    return scenario.retries.status(run, 1).open;
  });
  expect(retries).toEqual([FEW, 50 - FEW]);
});

test.each([
  ["is taken over by the pump of a later run", false, 0, FEW],
  ["is sent by it if the pump of a later run has ended meanwhile", true, 50, 0],
])("what an earlier pump is claiming %s, and the earlier one ends", async (_what, hasEnded, own, others) => {
  const scenario = start(200, 1_000);
  const stop = new AbortController();
  const earlier = scenario.pump(1, { lingers: true });
  await scenario.run(500);
  const later = scenario.pump(2, { lingers: true, stop: stop.signal });
  if (hasEnded) stop.abort();
  expect(await scenario.until(earlier, 600_000)).toMatchObject({ sent: own, end: "superseded" });
  stop.abort();
  expect(await scenario.until(later)).toMatchObject({ sent: others, end: "stopped" });
  const sent = own + others;
  expect([scenario.started.length, scenario.queue.unclaimed]).toEqual([sent, 50 - sent]);
});

test("what a pump that is stopped is claiming is given back", async () => {
  const scenario = start(200, 1_000);
  const stop = new AbortController();
  const stopped = scenario.pump(1, { lingers: true, stop: stop.signal });
  await scenario.run(500);
  stop.abort();
  expect(await scenario.until(stopped)).toMatchObject({ sent: 0, end: "stopped" });
  expect([scenario.started.length, scenario.queue.unclaimed]).toEqual([0, 50]);
});

test("a pump that an earlier run restarts ends at once, and the later run's pump continues", async () => {
  const scenario = start();
  const later = scenario.pump(2);
  await scenario.run(100);
  expect(await scenario.pump(1, { lingers: true })).toMatchObject({ sent: 0, end: "superseded" });
  expect(await scenario.until(later)).toMatchObject({ sent: 50, delivered: 50, end: "done" });
});

test("a pump that is stopped records what is in flight and gives back the rest, which another one sends", async () => {
  const scenario = start();
  const stop = new AbortController();
  const stopped = scenario.pump(1, { lingers: true, stop: stop.signal });
  await scenario.run(100);
  stop.abort();
  await scenario.run(100);
  expect(scenario.queue.unclaimed).toBe(50 - FEW);
  expect(await scenario.until(stopped)).toMatchObject({ sent: FEW, delivered: FEW, end: "stopped" });
  const other = scenario.pump(2, { worker: 1 });
  expect(await scenario.until(other)).toMatchObject({ delivered: 50 - FEW, end: "done" });
});

test("an idle pump sends later deliveries as soon as it is woken, also during a claim, and ends when its time is over", async () => {
  const claimMs = 100;
  const scenario = new Scenario({ one: {} }, { statementMs: claimMs });
  const lingering = scenario.pump(1, { lingers: true, forMs: 10_000 });
  const wake = () => {
    scenario.add("one", 1);
    scenario.workers[0]?.pumps.wake();
  };
  await scenario.run(claimMs + POLL_MS / 2);
  wake();
  await scenario.run(claimMs + 1);
  expect(scenario.started).toHaveLength(1);
  // The next claim begins with the result of the last one.
  await scenario.run(claimMs / 2);
  wake();
  await scenario.run(2 * claimMs);
  expect(scenario.started).toHaveLength(2);
  expect(await scenario.until(lingering)).toMatchObject({ sent: 2, delivered: 2, end: "time" });
});

test("a pump that lingers finds what is queued later within the polling interval although nobody wakes it", async () => {
  const scenario = new Scenario({ one: {} });
  void scenario.pump(1, { lingers: true });
  await scenario.run(1_000);
  scenario.add("one", 2);
  await scenario.run(POLL_MS + 10);
  expect(scenario.started).toHaveLength(2);
});

test.each([
  ["sleeps until the next token, again and again", [30_000, 30_000, 30_000], [0, 30_000, 60_000]],
  ["waits for the end of a hold without a claim, and ends", [30_000, null], [0, 30_000]],
  ["waits for a token that comes soon", [200, null], [0, 200]],
  ["leaves what comes after its time to the pump of a later run", [80_000], [0]],
])("a pump that finds nothing %s", async (_what, later, expected) => {
  const scenario = new Scenario({ one: {} }, { settings: SETTINGS });
  const claims: number[] = [];
  const claim = scenario.queue.claim.bind(scenario.queue);
  scenario.queue.claim = async (...args) => {
    const laterMs = later[claims.length] ?? null;
    claims.push(Math.round(scenario.time.now / 100) * 100);
    return { ...(await claim(...args)), laterMs };
  };
  const pump = scenario.pump(1, { forMs: 75_000 });
  expect(await scenario.until(pump, 200_000)).toMatchObject({ sent: 0, end: "done" });
  expect(claims).toEqual(expected);
  expect(scenario.time.now).toBeLessThanOrEqual((expected.at(-1) as number) + 1_000);
});

test("a pump that sleeps until the next token wakes when deliveries of its own are released", async () => {
  const scenario = new Scenario({ one: { answer: () => answerOf(200, LATE_MS) } }, { settings: SETTINGS });
  const touched: number[] = [];
  const claim = scenario.queue.claim.bind(scenario.queue);
  scenario.queue.claim = async (...args) => {
    const claimed = await claim(...args);
    touched.push(claimed.touched);
    return { ...claimed, laterMs: 30_000 };
  };
  scenario.add("one", FEW + 1);
  const stop = new AbortController();
  void scenario.pump(1, { stop: stop.signal });
  await scenario.run(1_000);
  expect(touched.at(-1)).toBe(0);
  scenario.workers[0]?.sender.stop(new Set([1n]));
  await scenario.run(1_000);
  expect(touched.filter((each) => each > 0)).toEqual([FEW + 1, 1]);
});
