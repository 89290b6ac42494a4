import pino from "pino";
import { expect, onTestFinished, test } from "vitest";
import { WebhookProcess } from "../../gen/webhook/v1/event_pb.ts";
import { type FilterJob, type FilterResult, runFilter } from "../../src/filters/filter-runner.ts";
import { FilterThreads } from "../../src/filters/filter-threads.ts";
import { HUNGRY_FILTERS, SLOW_FILTERS, SLOWEST_FILTER } from "./attacks.ts";

const process = WebhookProcess.ORDER_DISPATCHED;
const EVENT = { payload: '{"OrderId":7,"OrderNumber":"SO-7","Carrier":"DHL"}', userId: "tenant-42" };
const USUAL = 'event.carrier == "DHL"';

function startThreads(limitMs = 50): FilterThreads {
  const threads = new FilterThreads(limitMs, pino({ level: "error" }));
  onTestFinished(() => threads.close());
  return threads;
}

const jobOf = (expression: string, more: Partial<FilterJob> = {}): Omit<FilterJob, "done"> => ({
  owner: "app",
  webhook: "1",
  filter: { process, expression },
  event: EVENT,
  ...more,
});

test("a filter is compiled and evaluated in another thread", async () => {
  const threads = startThreads();
  const ask = (expression: string, event: FilterJob["event"] = EVENT) =>
    runFilter(threads, jobOf(expression, { event }));
  expect(await ask(USUAL)).toEqual({ sent: true });
  expect(await ask('event.carrier == "UPS"')).toEqual({ sent: false });
  expect(await ask("1 / (event.order_id - 7) == 1")).toMatchObject({ sent: true, problem: "failed" });
  expect(await ask("event.weight > 1")).toMatchObject({
    sent: true,
    problem: "invalid",
    error: expect.stringMatching(/OrderDispatched has no field weight; its fields: order_id/),
  });
  expect(await ask(USUAL, { payload: '{"OrderId":"x"}', userId: "" })).toMatchObject({ problem: "failed" });
  const valid = await runFilter(threads, {
    owner: "key",
    webhook: "key",
    filter: { process, expression: USUAL },
  });
  expect(valid).toEqual({ sent: true });
});

test.each(Object.entries(SLOW_FILTERS))("%s end at the time limit", async (_, expression) => {
  expect(expression.length).toBeLessThanOrEqual(1_000);
  const threads = startThreads();
  const valid = await runFilter(threads, { owner: "key", webhook: "key", filter: { process, expression } });
  expect(valid).toEqual({ sent: true });
  expect(await runFilter(threads, jobOf(expression))).toEqual({
    sent: true,
    problem: "slow",
    error:
      "takes longer than the 50 ms allowed (FILTER_TIMEOUT); use fewer loops and shorter regular expressions",
  });
  expect(await runFilter(threads, jobOf(USUAL))).toEqual({ sent: true });
});

test("filters that would make huge values end, and so does nothing else", async () => {
  const threads = startThreads();
  const event = { payload: `{"OrderNumber":"${"a".repeat(250_000)}"}`, userId: "" };
  for (const [name, expression] of Object.entries(HUNGRY_FILTERS)) {
    expect(expression.length, name).toBeLessThanOrEqual(1_000);
    const { sent, problem, error } = await runFilter(threads, jobOf(expression, { event }));
    expect([sent, problem === "slow" || problem === "failed"], `${name}: ${error}`).toEqual([true, true]);
    if (problem === "failed") expect(error, name).toMatch(/more than \d+ (elements|characters|bytes)$/);
    expect(await runFilter(threads, jobOf(USUAL)), name).toEqual({ sent: true });
  }
});

test("numbers of 250,000 digits end", async () => {
  const threads = startThreads();
  const event = { payload: `{"OrderNumber":"${"7".repeat(250_000)}"}`, userId: "" };
  const expression = Array(30).fill("int(event.order_number) == 1").join(" || ");
  expect(await runFilter(threads, jobOf(expression, { event }))).toMatchObject({ sent: true });
  expect(await runFilter(threads, jobOf(USUAL))).toEqual({ sent: true });
});

test.each([
  [
    "a regular expression that takes long to compile",
    `event.carrier.matches("${"(?:a?b?c?d?e?){1000}".repeat(40)}$")`,
  ],
  ["brackets without an end", "(".repeat(1_000)],
  ["a text without an end", `"""${"\\\\".repeat(498)}`],
  ["loops with two variables in each other", `${"[1].all(i, v, ".repeat(60)}true${")".repeat(60)}`],
  ["optional fields of each other", `{"a": 1}${".?a".repeat(300)}.hasValue()`],
  ["optional maps in each other", `${'{?"a": optional.of('.repeat(45)}1${")}".repeat(45)} == {}`],
  ["deep brackets", `${"(".repeat(490)}true${")".repeat(490)}`],
])("%s end", async (_, expression) => {
  const threads = startThreads();
  const result = await runFilter(threads, jobOf(expression, { event: undefined }));
  if (result.problem) expect(["slow", "invalid"]).toContain(result.problem);
  expect(await runFilter(threads, jobOf(USUAL))).toEqual({ sent: true });
});

test("an evaluation that fills the memory ends, and the next one is made by another thread", async () => {
  const threads = startThreads(60_000);
  const expression = `[${SLOWEST_FILTER.slice(1, 703)}]${".map(a, [a + a, a + a + 'x'])".repeat(4)}${".map(a, a + a + a + a + a + a)".repeat(8)}.size() == 0`;
  const result = await runFilter(threads, jobOf(expression));
  expect(result).toMatchObject({ sent: true });
  expect(await runFilter(threads, jobOf(USUAL))).toEqual({ sent: true });
});

/** Runs jobs, and notes the names of those that end in their order. */
function runAll(threads: FilterThreads, jobs: Record<string, Omit<FilterJob, "done">[]>) {
  const order: string[] = [];
  const results: FilterResult[] = [];
  const { promise, resolve } = Promise.withResolvers<void>();
  const all = Object.values(jobs).flat().length;
  for (const [name, some] of Object.entries(jobs))
    for (const job of some)
      threads.run({
        ...job,
        done(result) {
          order.push(name);
          results.push(result);
          if (order.length === all) resolve();
        },
      });
  return { order, results, done: promise };
}

test("an app whose filters take all the time that they may does not delay those of another", async () => {
  const threads = startThreads();
  const slow = Array.from({ length: 33 }, (_, n) => jobOf(SLOWEST_FILTER, { webhook: `slow ${n % 11}` }));
  const usual = Array.from({ length: 100 }, () => jobOf(USUAL, { owner: "other", webhook: "other" }));
  const { order, results, done } = runAll(threads, { slow, usual });
  await done;
  expect(results.filter(({ problem }) => problem === "slow")).toHaveLength(33);
  // What is sent to the thread together, twice.
  expect(order.slice(0, order.lastIndexOf("usual")).filter((name) => name === "slow").length).toBeLessThan(5);
});

test("neither does a webhook delay another one of its app", async () => {
  const threads = startThreads();
  const slow = Array.from({ length: 10 }, () => jobOf(SLOWEST_FILTER, { webhook: "slow" }));
  const usual = Array.from({ length: 100 }, () => jobOf(USUAL, { webhook: "usual" }));
  const { order, done } = runAll(threads, { slow, usual });
  await done;
  expect(order.slice(0, order.lastIndexOf("usual")).filter((name) => name === "slow").length).toBeLessThan(5);
});

test("jobs that are not wanted any more cost no time", async () => {
  const threads = startThreads();
  let isWanted = true;
  const ended: FilterResult[] = [];
  const slow = jobOf(SLOWEST_FILTER, { isWanted: () => isWanted });
  for (let n = 0; n < 1_000; n += 1) threads.run({ ...slow, done: (result) => ended.push(result) });
  await runFilter(threads, jobOf(USUAL, { owner: "other" }));
  isWanted = false;
  const before = ended.length;
  // Of the same webhook, so the jobs before it are over.
  expect(await runFilter(threads, jobOf(USUAL))).toEqual({ sent: true });
  expect(ended).toHaveLength(before);
});

test("many filters are evaluated, each with its own result", async () => {
  const threads = startThreads();
  const asked = Array.from({ length: 2_000 }, (_, n) =>
    runFilter(
      threads,
      jobOf(`event.order_id == ${n}`, {
        owner: `app ${n % 7}`,
        webhook: String(n % 100),
        event: { payload: `{"OrderId":${n % 3 === 0 ? n : n + 1}}`, userId: "" },
      }),
    ),
  );
  const results = await Promise.all(asked);
  expect(results.map(({ sent }) => sent)).toEqual(results.map((_, n) => n % 3 === 0));
});
