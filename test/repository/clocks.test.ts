import { globSync, readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { findClocks } from "./clocks.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
const files = globSync("test/**/*.{ts,tsx}", { cwd: root })
  .map((file) => file.split(path.sep).join("/"))
  .filter((file) => !file.startsWith("test/faults/"))
  .sort();

/** The file that waits for all others. */
const WAIT_HELPER = "test/support/wait.ts";

test("no assertion uses a clock, and every wait takes its limit from PATIENCE_MS, but in test/faults", () => {
  const found = files.flatMap((file) => {
    const source = readFileSync(path.join(root, file), "utf8");
    const findings = findClocks(source, file.endsWith("x") ? "tsx" : "ts", file === WAIT_HELPER);
    return findings.map(({ line, rule, text }) => `${file}:${line}: ${rule}: ${text}`);
  });
  expect(found).toEqual([]);
});

test.each([
  "expect(Date.now() - started).toBeLessThan(100);",
  "expect(row.created.getTime()).toBeLessThanOrEqual(Date.now());",
  "await expect(isValid(secret, new Date())).resolves.toBe(true);",
  "expect.soft(Math.abs(at - performance.now()) < 5).toBe(true);",
  "const took = performance.now() - started; expect(took).toBeLessThan(100);",
  "const before = Date.now(); expect(row.created.getTime()).toBeGreaterThanOrEqual(before);",
  "const now = new Date(); const then = now.getTime() - HOUR; expect(at).toBeLessThan(then);",
  "const [a, b] = [Date.now(), 1]; expect(x).toBeGreaterThan(a);",
  "let at = 0; at = Date.now(); expect(x).toBeGreaterThan(at);",
  "const took: number[] = []; took.push(performance.now() - t); const [median = 0] = took.toSorted().slice(2); expect(median).toBeLessThan(9);",
  "async function stop() { const t = performance.now(); await end(); return { code: 0, ms: performance.now() - t }; } const { ms } = await stop(); expect(ms).toBeLessThan(9);",
  "const service = { elapsed: () => process.hrtime.bigint() - began }; expect(service.elapsed()).toBeLessThan(9n);",
  "const entries: { at: number }[] = []; entries.push({ at: Date.now() }); const last = Math.max(...entries.map(({ at }) => at)); expect(last - answered).toBeLessThan(9);",
  "for (const time of [performance.now()]) expect({ time }).toEqual({ time: 1 });",
  "const isLate = Date.now() > limit; expect(isLate).toBe(false);",
])("a clock in an assertion is found: %s", (source) => {
  expect(findClocks(source).map(({ rule }) => rule)).toEqual(["a clock in an assertion"]);
});

test.each([
  "const since = new Date(Date.now() - 3 * HOUR); await store({ since }); expect(await read()).toEqual({ since });",
  "const now = new Date(); expect(isValid(secret, now)).toBe(true);",
  "expect(second.started.getTime()).toBeGreaterThan(first.started.getTime());",
  "const id = await store({ created: new Date() }); expect(id).toBeGreaterThan(0);",
  "const times = [performance.now()]; expect(times.length).toBe(1);",
  "const { code, ms } = { code: await end(), ms: performance.now() }; console.log(ms); expect(code).toBe(0);",
  "const before = new Date(); expect(before === undefined).toBe(false);",
  "expect(new Date(0)).toEqual(new Date('1970-01-01'));",
])("data that is made with a clock is not taken for an assertion that uses it: %s", (source) => {
  expect(findClocks(source)).toEqual([]);
});

test.each([
  ['test("t", () => {}, 1_000);'],
  ['test("t", { timeout: 1_000 }, () => {});'],
  ['test.each([1])("t", () => {}, LONG_MS);'],
  ['test.skipIf(a).for([1])("t", () => {}, 2 * PATIENCE_MS);'],
  ["beforeAll(async () => {}, 120_000);"],
  ["afterEach(() => {}, LONG_MS);"],
  ["await expect.poll(read, { timeout: 20_000, interval: 5 }).toBe(1);"],
  ["const PATIENT = { timeout: 60_000 };"],
  ["await vi.waitFor(read);"],
  ["await vi.waitUntil(read, { timeout: PATIENCE_MS });"],
  ["vi.setConfig({ testTimeout: 240_000 });"],
])("another limit than PATIENCE_MS is found: %s", (source) => {
  expect(findClocks(source).map(({ rule }) => rule)).toEqual(["a limit of a wait"]);
});

test("waits by the constant, in the one file that waits for all others, and functions in the place of a limit pass", () => {
  expect(findClocks('test("t", { timeout: PATIENCE_MS }, () => {}); test("t", () => {});')).toEqual([]);
  expect(findClocks("beforeAll(start); afterAll(() => end(1)); expect.poll(a).toBe(2);")).toEqual([]);
  expect(findClocks("vi.waitFor(read, { timeout: PATIENCE_MS });", "ts", true)).toEqual([]);
});

test("a finding has its line and its text, also in a file with markup", () => {
  const source = "const page = <main />;\n\ntest('t', () => {}, 5);\n";
  expect(findClocks(source, "tsx")).toEqual([{ line: 3, rule: "a limit of a wait", text: "5" }]);
});
