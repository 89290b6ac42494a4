import { globSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { findClocks } from "./clocks.ts";
import { read, root } from "./project.ts";

/** Files that may use a clock: those of faults, those that say what is refused, and the one that waits for all others. */
const MAY_USE_A_CLOCK = /^test\/(faults\/|repository\/clocks|support\/wait\.ts)/;
/** Files that measure for what they print, or to be busy for a while. */
const MAY_MEASURE = /^test\/(support\/(fuzz\/|test-api)|delivery\/limits\/in-flight-limit)/;

test("no assertion uses a clock, and every wait takes its limit from PATIENCE_MS, but in test/faults", () => {
  const files = globSync("test/**/*.{ts,tsx}", { cwd: root }).map((file) => file.split(path.sep).join("/"));
  const found = files
    .filter((file) => !MAY_USE_A_CLOCK.test(file))
    .flatMap((file) =>
      findClocks(read(file), file.endsWith("x") ? "tsx" : "ts")
        .filter(({ text }) => !MAY_MEASURE.test(file) || !/performance|hrtime/.test(text))
        .map(({ line, rule, text }) => `${file}:${line}: ${rule}: ${text}`),
    );
  expect(found).toEqual([]);
});

test.each([
  "expect(row.created.getTime()).toBeLessThanOrEqual(Date.now());",
  "await expect(isValid(secret, new Date())).resolves.toBe(true);",
  "const took = performance.now() - started; expect(took).toBeLessThan(100);",
  "const service = { elapsed: () => process.hrtime.bigint() - began };",
  "const before = Date.now(); expect(row.created.getTime()).toBeGreaterThanOrEqual(before);",
  "const now = new Date(); const then = now.getTime() - HOUR; expect(at).toBeLessThan(then);",
  "let at = 0; at = Date.now(); expect(x).toBeGreaterThan(at);",
])("a clock in an assertion is found: %s", (source) => {
  expect(findClocks(source).map(({ rule }) => rule)).toEqual(["a clock in an assertion"]);
});

test.each([
  'test("t", () => {}, 1_000);',
  'test("t", { timeout: 1_000 }, () => {});',
  'test.skipIf(a).for([1])("t", () => {}, 2 * PATIENCE_MS);',
  "beforeAll(async () => {}, 120_000);",
  "await expect.poll(read, { timeout: 20_000, interval: 5 }).toBe(1);",
  "await vi.waitUntil(read, { timeout: PATIENCE_MS });",
  "vi.setConfig({ testTimeout: 240_000 });",
])("another limit than PATIENCE_MS is found, with its line: %s", (source) => {
  const found = findClocks(`const page = <main />;\n\n${source}`, "tsx");
  expect(found).toEqual([{ line: 3, rule: "a limit of a wait", text: expect.any(String) }]);
});

test.each([
  "const since = new Date(Date.now() - 3 * HOUR); await store({ since }); expect(await read()).toEqual({ since });",
  "const now = new Date(); expect(isValid(secret, now)).toBe(true);",
  "expect(second.started.getTime()).toBeGreaterThan(first.started.getTime());",
  "const id = await store({ created: new Date() }); expect(id).toBeGreaterThan(0);",
  "expect(new Date(0)).toEqual(new Date('1970-01-01'));",
  'test("t", { timeout: PATIENCE_MS }, () => {}); test("t", () => {});',
  "beforeAll(start); afterAll(() => end(1)); expect.poll(a).toBe(2);",
])("data that is made with a clock and waits by the constant pass: %s", (source) => {
  expect(findClocks(source)).toEqual([]);
});
