import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { expect, onTestFinished, test } from "vitest";

const script = fileURLToPath(new URL("../../scripts/test-summary.cjs", import.meta.url));

/** Runs the script on reports; returns its lines and its exit code. */
function linesFor(options: string[], ...reports: (string | undefined)[]) {
  const folder = mkdtempSync(path.join(os.tmpdir(), "webhook-report-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const files = reports.map((report, n) => {
    const file = path.join(folder, `${n}.json`);
    if (report !== undefined) writeFileSync(file, report);
    return file;
  });
  const { stdout, status } = spawnSync(process.execPath, [script, ...options, ...files], {
    encoding: "utf8",
    cwd: "/",
  });
  return { lines: stdout.trimEnd().split("\n"), status };
}

/** Its last line and its exit code. */
function summary(...reports: (string | undefined)[]): { last: string; status: number | null } {
  const { lines, status } = linesFor([], ...reports);
  return { last: lines.at(-1) ?? "", status };
}

function reportOf(...files: { status: string; tests: string[] }[]): string {
  const testResults = files.map(({ status, tests }, n) => ({
    name: `/test/${n}.test.ts`,
    status,
    message: "it cannot be loaded",
    assertionResults: tests.map((test, m) => ({
      status: test,
      fullName: `test ${m}`,
      failureMessages: test === "failed" ? ["\u001b[31mexpected 50\u001b[39m\nto be 4"] : [],
    })),
  }));
  return JSON.stringify({ testResults });
}

test("the summary of a good run counts the tests and ends with 0", () => {
  const report = reportOf(
    { status: "passed", tests: ["passed", "passed"] },
    { status: "passed", tests: ["passed"] },
  );
  expect(summary(report)).toEqual({ last: "3 passed, 0 failed", status: 0 });
});

test("the summary tells skipped tests, those to do included", () => {
  const report = reportOf({ status: "passed", tests: ["passed", "pending", "skipped", "todo"] });
  expect(summary(report)).toEqual({ last: "1 passed, 0 failed, 3 skipped", status: 0 });
});

test("a failed test makes the summary end with 1", () => {
  const report = reportOf({ status: "failed", tests: ["passed", "failed"] });
  expect(summary(report)).toEqual({ last: "1 passed, 1 failed", status: 1 });
});

test("a file that could not be loaded counts as a failure", () => {
  const report = reportOf({ status: "passed", tests: ["passed"] }, { status: "failed", tests: [] });
  expect(summary(report)).toEqual({ last: "1 passed, 1 failed", status: 1 });
});

test("a run without tests, without a report or with a damaged one ends with 1", () => {
  const nothing = { last: "0 passed, 0 failed", status: 1 };
  expect(summary(reportOf())).toEqual(nothing);
  expect(summary(reportOf({ status: "passed", tests: ["skipped"] }))).toEqual({
    last: "0 passed, 0 failed, 1 skipped",
    status: 1,
  });
  expect(summary(undefined)).toEqual(nothing);
  expect(summary("{")).toEqual(nothing);
});

test("a test that failed beside others and passes alone counts as passed, and is named with the reason", () => {
  const first = reportOf(
    { status: "failed", tests: ["passed", "failed"] },
    { status: "passed", tests: ["passed"] },
  );
  expect(linesFor(["--failed-files"], first).lines).toEqual(["test/0.test.ts"]);
  expect(linesFor([], first, reportOf({ status: "passed", tests: ["passed", "passed"] }))).toEqual({
    lines: [
      "failed beside others, then run again alone: test/0.test.ts > test 1",
      "  expected 50",
      "  to be 4",
      "3 passed, 0 failed",
    ],
    status: 0,
  });
  expect(summary(first, reportOf({ status: "failed", tests: ["passed", "failed"] }))).toEqual({
    last: "2 passed, 1 failed",
    status: 1,
  });
});

test("a file that could not be loaded beside others is named with the reason", () => {
  const first = reportOf({ status: "failed", tests: [] });
  expect(linesFor([], first, reportOf({ status: "passed", tests: ["passed"] })).lines).toEqual([
    "failed beside others, then run again alone: test/0.test.ts",
    "  it cannot be loaded",
    "1 passed, 0 failed",
  ]);
});

test("a run without failed tests has no files to run again", () => {
  expect(linesFor(["--failed-files"], reportOf({ status: "passed", tests: ["passed"] })).lines).toEqual([""]);
});
