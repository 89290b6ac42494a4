import { expect, test } from "vitest";
import { INITIAL_WINDOW } from "../../src/delivery/limits/windows.ts";
import { RetryPasses } from "../../src/delivery/retry-pass.ts";
import type { GroupStatus } from "../../src/queue/retry-groups.ts";
import { answerOf } from "../support/simulation/receivers.ts";
import { type Group, Scenario, type ScenarioOptions } from "../support/simulation/scenario.ts";
import { SimulatedTime } from "../support/simulation/simulated-time.ts";
import { startSender } from "./sender-parts.ts";

const DELAY_MS = 10_000;
/** The retry after the next one comes later than any pass looks ahead. */
const SETTINGS = { RETRY_INITIAL_DELAY: "10s", RETRY_BACKOFF_COEFFICIENT: "100", DELIVERY_TIMEOUT: "60s" };

const start = (groups: Record<string, Group>, options: ScenarioOptions = {}) =>
  new Scenario(groups, { ...options, settings: SETTINGS });

test("a pass waits for the retries that fall due within its horizon, sends each once, and ends", async () => {
  const scenario = start({ all: { webhooks: 3 } });
  scenario.addFailed("all", 20, 1);
  const passed = scenario.pass();
  await scenario.run(DELAY_MS - 1);
  expect(scenario.started).toEqual([]);
  const all = { sent: 60, delivered: 60, status: { open: 0 }, lastFailure: null, complete: true };
  expect(await scenario.until(passed, 3_000)).toMatchObject(all);
});

test("a pass leaves what falls due after its horizon, and tells the last failure and when the next retry is due", async () => {
  const scenario = start({ one: { answer: () => answerOf(503, 10) } });
  scenario.addFailed("one", 5, 1);
  expect(await scenario.until(scenario.pass(1, { horizonMs: DELAY_MS - 1 }), 100)).toMatchObject({
    sent: 0,
    status: { open: 5, delayMs: expect.closeTo(DELAY_MS, -2) },
    complete: true,
  });
  const { status, ...rest } = await scenario.until(scenario.pass(), DELAY_MS + 3_000);
  expect(rest).toMatchObject({ sent: 5, retrying: 5, lastFailure: "503 from host-0.example" });
  expect(status.open).toBe(5);
  expect(status.delayMs).toBeGreaterThan(99 * DELAY_MS);
});

test.each([
  ["records what is in flight and gives back the rest", 1, INITIAL_WINDOW],
  ["amid its claim gives back what it gets", 100, 0],
])("a pass that is stopped %s, which another worker sends", async (_does, statementMs, sent) => {
  const scenario = start({ one: { answer: () => answerOf(200, 100) } }, { workers: 2, statementMs });
  scenario.addFailed("one", 30, 1);
  await scenario.run(DELAY_MS);
  const stop = new AbortController();
  const stopped = scenario.pass(1, { stop: stop.signal });
  await scenario.run(50);
  stop.abort();
  const made = { sent, delivered: sent, status: { open: 30 - sent }, complete: false };
  expect(await scenario.until(stopped, 1_000)).toMatchObject(made);
  const rest = { sent: 30 - sent, delivered: 30 - sent, status: { open: 0 }, complete: true };
  expect(await scenario.until(scenario.pass(1, { worker: 1 }))).toMatchObject(rest);
  expect(scenario.started).toHaveLength(30);
});

test("a pass claims what has fallen due meanwhile after a tenth of its horizon, and at once where half of many have ended", async () => {
  const scenario = start({
    slow: { answer: () => answerOf(200, 30_000) },
    late: {},
    many: { webhooks: 32, hosts: 16, answer: () => answerOf(200, 100) },
  });
  scenario.addFailed("slow", 1, 1);
  await scenario.run(10);
  scenario.addFailed("late", 1, 1);
  await scenario.run(DELAY_MS - 10);
  void scenario.pass(1, { horizonMs: 5_000 });
  await scenario.run(495);
  expect(scenario.startedOf("late")).toEqual([]);
  await scenario.run(20);
  expect(scenario.startedOf("late")).toHaveLength(1);

  scenario.addFailed("many", 1, 2);
  await scenario.run(10);
  scenario.addFailed("late", 1, 2);
  await scenario.run(DELAY_MS - 10);
  void scenario.pass(2, { horizonMs: 5_000 });
  await scenario.run(50);
  expect(scenario.startedOf("many")).toHaveLength(32);
  await scenario.run(70);
  expect(scenario.startedOf("late")).toHaveLength(2);
});

/** A pass with answers of the database that the test gives; `asked` are the statements, in order. */
function scripted(status: Partial<GroupStatus>, { limited = false, statusMs = 1 } = {}) {
  const time = new SimulatedTime();
  const { clock } = time;
  const asked: string[] = [];
  const sender = startSender(clock, { post: () => {} });
  const answer = async <T>(what: string, ms: number, known: T): Promise<T> => {
    asked.push(what);
    await clock.wait(ms);
    return known;
  };
  const passes = new RetryPasses({
    clock,
    claim: (_workerId, { groups }) =>
      answer("claim", 1, { deliveries: [], touched: 0, limited: limited ? [...groups] : [] }),
    lease: { claim: (work) => work(1) },
    sender,
    settle: (groups) =>
      answer(
        "status",
        statusMs,
        groups.map(() => ({ open: 0, delayMs: 0, ...status })),
      ),
  });
  const stop = new AbortController();
  const options = { horizonMs: 30_000, forMs: 60_000 };
  const passed = passes.run({ runId: 7, group: 1 }, options, stop.signal);
  return { time, asked, stop, passed };
}

test("a pass that waits for a rate limit asks for tokens four times a second until its horizon, and does not count its retries", async () => {
  const { time, asked, passed } = scripted({ open: 20 }, { limited: true });
  await time.run(2_000);
  expect(asked).toEqual(Array(8).fill("claim"));
  await time.run(31_000);
  expect(asked.slice(-2)).toEqual(["claim", "status"]);
  expect(await passed).toMatchObject({ sent: 0, status: { open: 20 }, complete: true });
});

test("a pass whose webhook hangs in another run counts its retries rarely: at most a tenth of the time", async () => {
  const { time, asked, stop } = scripted({ open: 20 }, { statusMs: 300 });
  await time.run(20_000);
  const claims = asked.filter((each) => each === "claim").length;
  expect([claims, asked.length - claims]).toEqual([20, 5]);
  stop.abort();
});
