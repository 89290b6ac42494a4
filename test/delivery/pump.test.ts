import pino from "pino";
import { expect, test } from "vitest";
import { INITIAL_WINDOW as FEW } from "../../src/delivery/limits/windows.ts";
import { Pumps } from "../../src/delivery/pump.ts";
import { answerOf } from "../support/simulation/receivers.ts";
import { Scenario } from "../support/simulation/scenario.ts";
import { SimulatedTime } from "../support/simulation/simulated-time.ts";
import { startSender } from "./sender-parts.ts";

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
  ["sleeps until the next token of a slow rate limit", 30_000, [0, 30_000, 60_000], 75_000],
  ["leaves a token to the pump of a later run if it comes after its time", 80_000, [0], 0],
])("a pump %s", async (_what, laterMs, expected, endsBy) => {
  const scenario = new Scenario({ one: {} }, { settings: SETTINGS });
  const claims: number[] = [];
  const claim = scenario.queue.claim.bind(scenario.queue);
  scenario.queue.claim = async (...args) => {
    claims.push(Math.round(scenario.time.now / 1_000) * 1_000);
    return { ...(await claim(...args)), laterMs };
  };
  const pump = scenario.pump(1, { forMs: 75_000 });
  expect(await scenario.until(pump, 200_000)).toMatchObject({ sent: 0, end: "done" });
  expect(claims).toEqual(expected);
  expect(scenario.time.now).toBeLessThanOrEqual(endsBy + 1_000);
  ["waits for the end of a hold without a claim", 30_000, [0, 30_000]],
  ["ends if the hold lasts longer than the pump", 90_000, [0]],
  ["waits for the next token", 200, [0, 200]],
])("a pump that finds nothing else %s", async (_what, laterMs, expected) => {
  const time = new SimulatedTime();
  const claims: number[] = [];
  const pumps = new Pumps({
    queue: {
      async claim() {
        const later = claims.length === 0 ? laterMs : null;
        claims.push(time.now);
        return { deliveries: [], touched: 0, laterMs: later, next: null, workers: 1 };
      },
      fanOut: async () => null,
      expectsMore: async () => false,
    },
    log: pino({ level: "silent" }),
    lease: { claim: (work) => work(1) },
    sender: startSender(time.clock, { post: () => {} }),
    clock: time.clock,
  });
  const ran = pumps.run(1, { lingers: false, forMs: 60_000 }, new AbortController().signal);
  await time.run(100_000);
  expect(claims).toEqual(expected);
  expect(await ran).toMatchObject({ end: "done" });
});
