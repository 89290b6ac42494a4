import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { newFolder, root } from "./project.ts";

const script = `${root}scripts/test-summary.cjs`;

/** Runs the script on reports, of which undefined is not there; returns its lines and its exit code. */
function summary(...reports: (string | undefined)[]) {
  const folder = newFolder();
  const files = reports.map((report, n) => {
    const file = path.join(folder, `${n}.json`);
    if (report !== undefined) writeFileSync(file, report);
    return file;
  });
  const { stdout, status } = spawnSync(process.execPath, [script, ...files], { encoding: "utf8", cwd: "/" });
  return { lines: stdout.trimEnd().split("\n"), status };
}

function reportOf(...files: { status: string; tests: string[] }[]): string {
  const testResults = files.map(({ status, tests }, n) => ({
    name: `/test/${n}.test.ts`,
    status,
    message: status === "failed" ? "it cannot be loaded" : "",
    assertionResults: tests.map((test, m) => ({
      status: test,
      fullName: `test ${m}`,
      failureMessages: test === "failed" ? ["\u001b[31mexpected 50\u001b[39m\nto be 4"] : [],
    })),
  }));
  return JSON.stringify({ testResults });
}

const good = reportOf({ status: "passed", tests: ["passed", "passed"] });

test("the summary adds up the tests of all reports, skipped ones too, and ends with 0", () => {
  expect(summary(good)).toEqual({ lines: ["2 passed, 0 failed"], status: 0 });
  const other = reportOf({ status: "passed", tests: ["passed", "pending", "skipped", "todo"] });
  expect(summary(good, other)).toEqual({ lines: ["3 passed, 0 failed, 3 skipped"], status: 0 });
});

test("a failed test is named with its reason, and makes the summary end with 1", () => {
  expect(summary(good, reportOf({ status: "failed", tests: ["passed", "failed"] }))).toEqual({
    lines: ["failed: test/0.test.ts > test 1", "  expected 50", "  to be 4", "3 passed, 1 failed"],
    status: 1,
  });
});

test("a file that cannot be loaded, whose set-up fails or whose report is not there counts as a failure", () => {
  const unloaded = { lines: ["failed: test/0.test.ts", "  it cannot be loaded"], status: 1 };
  const broken = summary(reportOf({ status: "failed", tests: [] }));
  expect(broken).toEqual({ ...unloaded, lines: [...unloaded.lines, "0 passed, 1 failed"] });
  const unprepared = summary(reportOf({ status: "failed", tests: ["skipped"] }));
  expect(unprepared.lines.at(-1)).toBe("0 passed, 1 failed, 1 skipped");
  const missing = summary(good, undefined);
  expect(missing.status).toBe(1);
  expect(missing.lines.at(-1)).toBe("2 passed, 1 failed");
});

test("a run without tests ends with 1", () => {
  expect(summary(reportOf())).toEqual({ lines: ["no test ran", "0 passed, 0 failed"], status: 1 });
});
