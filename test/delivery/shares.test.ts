import { expect, test } from "vitest";
import { INITIAL_WINDOW } from "../../src/delivery/limits/windows.ts";
import { answerOf, faultOf, silenceOf } from "../support/simulation/receivers.ts";
import { type Group, Scenario, type ScenarioOptions } from "../support/simulation/scenario.ts";

const TIMEOUT_MS = 1_000;
const SETTINGS = { DELIVERY_TIMEOUT: "1s", RETRY_INITIAL_DELAY: "10s", RETRY_BACKOFF_COEFFICIENT: "100" };
const hangs = () => silenceOf(TIMEOUT_MS);
const closes = () => faultOf("webhook", 1);
const isUnreachable = () => faultOf("host timeout", TIMEOUT_MS);
const after =
  (ms: number, status = 200) =>
  () =>
    answerOf(status, ms);

function start(groups: Record<string, Group>, options: ScenarioOptions = {}): Scenario {
  return new Scenario(groups, { ...options, settings: { ...SETTINGS, ...options.settings } });
}

test("the many webhooks of a host that never answers hold up no other host's, however much waits for them", async () => {
  const scenario = start({ silent: { webhooks: 300, answer: hangs }, well: { webhooks: 50 } });
  scenario.add("silent", 20);
  scenario.add("well", 20);
  void scenario.pump();
  await scenario.run(TIMEOUT_MS - 1);
  expect(scenario.startedOf("well")).toHaveLength(50 * 20);
  expect(scenario.startedOf("silent")).toHaveLength(INITIAL_WINDOW);
});

test("slow receivers leave a request free for others, which also get each that becomes free", async () => {
  const slow = { webhooks: 20, hosts: 20, answer: after(1_000) };
  const settings = { DELIVERY_TIMEOUT: "60s", DELIVERY_MAX_IN_FLIGHT: "40" };
  const scenario = start({ slow, well: {} }, { settings });
  scenario.add("slow", 20);
  void scenario.pump(1, { lingers: true });
  await scenario.run(100);
  expect(scenario.started).toHaveLength(39);
  scenario.add("well", 20);
  await scenario.run(2_000);
  expect(scenario.startedOf("well")).toHaveLength(20);
});

test("responses after more than a second are healthy: a webhook's window grows with them, and is kept among fast ones", async () => {
  let ms = 1_200;
  const settings = { DELIVERY_MAX_PER_WEBHOOK: "50", DELIVERY_TIMEOUT: "60s" };
  const scenario = start({ one: { answer: () => answerOf(200, ms) } }, { settings });
  scenario.add("one", 60);
  void scenario.pump(1, { lingers: true });
  // Two and four, then twice as many as before.
  await scenario.run(4 * 1_300);
  expect(scenario.started).toHaveLength(60);
  ms = 10;
  scenario.add("one", 400);
  await scenario.run(3_000);
  ms = 1_200;
  scenario.add("one", 1);
  await scenario.run(2_000);
  expect(scenario.started).toHaveLength(461);
  ms = 5_000;
  scenario.add("one", 100);
  await scenario.run(2_000);
  expect(scenario.started).toHaveLength(461 + 50);
});

/** The paths of one host. */
const SHARED_HOST: Record<string, Group> = {
  hang: { host: "shared", answer: hangs },
  close: { host: "shared", answer: closes },
  fail: { host: "shared", answer: after(1, 500) },
  well: { host: "shared", webhooks: 8 },
};

test("of one host, a path that hangs, one that closes the connection and one that fails hold up neither eight healthy ones nor each other", async () => {
  const scenario = start(SHARED_HOST);
  scenario.add("hang", 20);
  void scenario.pump(1, { lingers: true });
  await scenario.run(TIMEOUT_MS + 100);
  for (const group of ["close", "fail"]) scenario.add(group, 20);
  scenario.add("well", 60);
  await scenario.run(TIMEOUT_MS);
  expect(scenario.startedOf("well")).toHaveLength(8 * 60);
  for (const group of ["close", "fail"]) expect(scenario.startedOf(group)).toHaveLength(20);
  // One at a time, each until its timeout.
  expect(scenario.startedOf("hang").length).toBeLessThan(8);
  await scenario.run(20 * TIMEOUT_MS);
  expect(scenario.startedOf("hang")).toHaveLength(20);
});

test("of one host, retries of a path that hangs, one that closes the connection and one that fails hold up no other retries", async () => {
  const scenario = start(SHARED_HOST);
  for (const group of ["hang", "close", "fail"]) scenario.addFailed(group, 20, 1);
  scenario.addFailed("well", 60, 1);
  await scenario.run(9_000);
  void scenario.pass();
  await scenario.run(1_000 + 2 * TIMEOUT_MS);
  expect(scenario.startedOf("well")).toHaveLength(8 * 60);
  for (const group of ["close", "fail"]) expect(scenario.startedOf(group)).toHaveLength(20);
  expect(scenario.startedOf("hang").length).toBeLessThan(8);
});

test("seventy webhooks on as many hosts that hang do not delay another one of their retry group", async () => {
  const hanging = { webhooks: 70, hosts: 70, answer: () => silenceOf(60_000) };
  const scenario = start({ hanging, well: {} }, { settings: { DELIVERY_TIMEOUT: "60s" } });
  scenario.addFailed("hanging", 3, 1);
  scenario.addFailed("well", 50, 1);
  await scenario.run(9_000);
  void scenario.pass();
  await scenario.run(1_000 + 10_000);
  expect(scenario.startedOf("well")).toHaveLength(50);
});

test("due retries get an eighth of the requests in flight beside first attempts at full speed", async () => {
  const settings = { DELIVERY_MAX_IN_FLIGHT: "64" };
  const scenario = start(
    { recovering: {}, well: { webhooks: 10, hosts: 10, answer: after(100) } },
    { settings },
  );
  scenario.addFailed("recovering", 200, 1);
  scenario.add("well", 2_000);
  void scenario.pump(2);
  await scenario.run(10_000);
  const before = scenario.startedOf("well").length;
  void scenario.pass();
  await scenario.run(4_000);
  expect(scenario.startedOf("recovering")).toHaveLength(200);
  expect(scenario.startedOf("well").length - before).toBeGreaterThan(4 * 56 * 10 * 0.9);
  expect(scenario.startedOf("well").length).toBeLessThan(10 * 2_000);
});

test("the retries of a webhook that always fails keep up with its first attempts, which never end", async () => {
  const settings = { RETRY_INITIAL_DELAY: "1s", RETRY_BACKOFF_COEFFICIENT: "1" };
  const scenario = start({ failing: { answer: after(1, 503) } }, { settings });
  scenario.addFailed("failing", 100, 1);
  scenario.add("failing", 4_000);
  void scenario.pump();
  const passes = async () => {
    for (;;) await scenario.pass(1, { horizonMs: 1_000 });
  };
  void passes();
  await scenario.run(30_000);
  const retries = scenario.started.filter(({ attempt }) => attempt > 1).length;
  expect(retries).toBeGreaterThan(200);
  // Each delivery has three retries. Before the first ones are due, only first attempts are made.
  expect(scenario.started.length - retries).toBeLessThan(retries + 100);
});

test("in a busy process, webhooks that fail one attempt after another get their percentage of it, however many they are", async () => {
  const failing = { webhooks: 200, hosts: 20, answer: after(1, 503) };
  const well = { webhooks: 20, hosts: 10, answer: after(10) };
  const settings = { DELIVERY_MAX_IN_FLIGHT: "20", DELIVERY_FAILING_PERCENT: "10" };
  const scenario = start({ failing, well }, { settings, isBusy: true });
  scenario.add("failing", 100);
  scenario.add("well", 500);
  void scenario.pump();
  // Each is tried until its window is one.
  await scenario.run(2_000);
  const counts = () =>
    ["failing", "well"].map((group) => scenario.startedOf(group).length) as [number, number];
  const before = counts();
  await scenario.run(2_000);
  const [failed, others] = counts().map((n, index) => n - (before[index] as number)) as [number, number];
  expect(failed).toBeLessThan(0.15 * (failed + others));
  expect(failed).toBeGreaterThan(20);
});

test.each([
  ["answer 503", after(1, 503)],
  ["close the connection", closes],
])("a busy process finds out after two attempts that a host's webhooks all %s", async (_what, answer) => {
  const well = { webhooks: 20, hosts: 10, answer: after(10) };
  const scenario = start({ failing: { webhooks: 300, answer }, well }, { isBusy: true });
  scenario.add("well", 200);
  void scenario.pump(1, { lingers: true });
  await scenario.run(1_000);
  scenario.add("failing", 10);
  await scenario.run(1_000);
  expect(scenario.startedOf("failing").length).toBeGreaterThan(INITIAL_WINDOW);
  expect(scenario.startedOf("failing").length).toBeLessThan(100);
});

test.each<[string, Group, number]>([
  ["webhook", { answer: hangs }, 1_000],
  ["host", { webhooks: 20, answer: isUnreachable }, 50],
])("few deliveries to a %s that hangs stay in memory", async (_what, hanging, each) => {
  // More deliveries than fit into the memory.
  const options = { settings: { DELIVERY_MEMORY: "1MiB" }, payloadBytes: 5_000 };
  const scenario = start({ hanging, well: {} }, options);
  const [worker] = scenario.workers;
  scenario.add("hanging", each);
  void scenario.pump(1, { lingers: true });
  await scenario.run(100);
  expect(worker?.held).toBeGreaterThan(100);
  scenario.add("well", 20);
  await scenario.run(2 * TIMEOUT_MS);
  expect(scenario.startedOf("well")).toHaveLength(20);
  for (let n = 0; n < 100; n += 1) {
    await scenario.run(TIMEOUT_MS / 10);
    expect(worker?.held).toBeLessThanOrEqual(10);
  }
});

test("a webhook that hung gets all of its deliveries once it responds again", async () => {
  const answer = (_attempt: number, at: number) => (at < 10_000 ? hangs() : answerOf(200, 10));
  const scenario = start({ recovering: { answer } });
  scenario.add("recovering", 1_000);
  const pumped = scenario.pump();
  await scenario.run(10_000);
  expect(scenario.workers[0]?.held).toBeLessThan(10);
  const { delivered, retrying, end } = await scenario.until(pumped);
  expect([delivered + retrying, end]).toEqual([1_000, "done"]);
  expect(retrying).toBe(scenario.started.filter(({ at }) => at < 10_000).length);
});
