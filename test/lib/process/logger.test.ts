import { expect, onTestFinished, test, vi } from "vitest";
import { createLogger } from "../../../src/lib/process/logger.ts";

/** Longer than the time in which repeated lines are counted, in milliseconds. */
const WINDOW_MS = 10_000;

interface Line {
  msg: string;
  repeats?: number;
  err: { type: string; message: string; code?: string; stack?: string; routine?: string; cause?: unknown };
}

function logged() {
  vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
  onTestFinished(() => void vi.useRealTimers());
  const lines: Line[] = [];
  const log = createLogger("info", null, { write: (line) => void lines.push(JSON.parse(line)) });
  return { log, lines, pass: () => vi.advanceTimersByTime(WINDOW_MS) };
}

const databaseError = (code: string, message = "no") =>
  Object.assign(new Error(message), { name: "DatabaseError", code, severity: "FEHLER", routine: "where" });

test("a repeated database error is logged once, and then its count as long as it repeats", () => {
  const { log, lines, pass } = logged();
  for (let n = 0; n < 100; n += 1)
    log.warn({ err: databaseError("25006"), n }, "the database is unavailable");
  log.warn({ err: databaseError("57P01") }, "the database is unavailable");
  log.warn({ err: databaseError("25006") }, "another event");
  expect(lines.map(({ repeats, err: { code } }) => [code, repeats])).toEqual([
    ["25006", undefined],
    ["57P01", undefined],
    ["25006", undefined],
  ]);
  pass();
  expect(lines.splice(0).at(-1)).toMatchObject({ msg: "the database is unavailable", repeats: 99, n: 99 });
  log.warn({ err: databaseError("25006") }, "the database is unavailable");
  pass();
  expect(lines.splice(0)).toMatchObject([{ repeats: 1 }]);
  pass();
  log.warn({ err: databaseError("25006") }, "the database is unavailable");
  expect(lines).toMatchObject([{ msg: "the database is unavailable" }]);
  expect(lines[0]).not.toHaveProperty("repeats");
});

test("lines have their time in ISO 8601, in UTC", () => {
  const { log, lines } = logged();
  log.info("started");
  expect(lines[0]).toMatchObject({ time: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/) });
});

test("lines with a reference, and lines about other errors, are all logged", () => {
  const { log, lines } = logged();
  for (const reference of ["a", "b"]) log.error({ err: databaseError("42P01"), reference }, "internal error");
  for (let n = 0; n < 2; n += 1) log.warn({ err: new Error("no") }, "failed");
  for (let n = 0; n < 2; n += 1) log.info("started");
  expect(lines).toHaveLength(6);
});

test("an error is logged with its first 300 characters, and a database error without the stack of the driver", () => {
  const { log, lines } = logged();
  log.error({ err: databaseError("XX000", "x".repeat(5_000)) }, "failed");
  log.error({ err: new Error("y".repeat(5_000), { cause: new Error("why") }) }, "failed");
  expect(lines[0]?.err).toEqual({
    type: "DatabaseError",
    message: `${"x".repeat(300)}…`,
    code: "XX000",
    routine: "where",
  });
  expect(lines[1]?.err).toMatchObject({ message: `${"y".repeat(300)}…`, cause: { message: "why" } });
  expect(lines[1]?.err.stack).toMatch(/^ {4}at /);
  expect(lines[1]?.err.stack).not.toContain("yyy");
});
