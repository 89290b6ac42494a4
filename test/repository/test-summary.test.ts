import { spawnSync } from "node:child_process";
import path from "node:path";
import { expect, test } from "vitest";
import { newFolder, root } from "./project.ts";

/** Runs the script on reports, and on one that does not exist if so told. */
function summary(reports: string[], ...missing: string[]) {
  const folder = newFolder(Object.fromEntries(reports.map((report, n) => [`${n}.json`, report])));
  const files = [...reports.map((_, n) => `${n}.json`), ...missing].map((name) => path.join(folder, name));
  const script = path.join(root, "scripts/test-summary.cjs");
  const { stdout, status } = spawnSync(process.execPath, [script, ...files], { encoding: "utf8", cwd: "/" });
  return { lines: stdout.trimEnd().split("\n"), status };
}

function report(status: string, ...tests: string[]): string {
  const assertionResults = tests.map((test, n) => ({
    status: test,
    fullName: `test ${n}`,
    failureMessages: test === "failed" ? ["\u001b[31mexpected 50\u001b[39m\nto be 4"] : [],
  }));
  const message = status === "failed" ? "it cannot be loaded" : "";
  return JSON.stringify({ testResults: [{ name: "/test/0.test.ts", status, message, assertionResults }] });
}

const good = report("passed", "passed", "passed");
const UNLOADED = ["failed: test/0.test.ts", "  it cannot be loaded"];

test.each([
  { what: "a report", reports: [good], lines: ["2 passed, 0 failed"], status: 0 },
  {
    what: "two reports with skipped tests",
    reports: [good, report("passed", "passed", "pending", "skipped", "todo")],
    lines: ["3 passed, 0 failed, 3 skipped"],
    status: 0,
  },
  {
    what: "a failed test, with its reason",
    reports: [good, report("failed", "passed", "failed")],
    lines: ["failed: test/0.test.ts > test 1", "  expected 50", "  to be 4", "3 passed, 1 failed"],
    status: 1,
  },
  {
    what: "a file that cannot be loaded",
    reports: [report("failed")],
    lines: [...UNLOADED, "0 passed, 1 failed"],
    status: 1,
  },
  {
    what: "a file whose set-up fails",
    reports: [report("failed", "skipped")],
    lines: [...UNLOADED, "0 passed, 1 failed, 1 skipped"],
    status: 1,
  },
  { what: "a run without tests", reports: ["{}"], lines: ["no test ran", "0 passed, 0 failed"], status: 1 },
])("the summary of $what", ({ reports, lines, status }) => {
  expect(summary(reports)).toEqual({ lines, status });
});

test("a report that does not exist counts as a failure", () => {
  const { lines, status } = summary([good], "missing.json");
  expect([lines.at(-1), status]).toEqual(["2 passed, 1 failed", 1]);
});
