import { spawnSync } from "node:child_process";
import path from "node:path";
import { expect, test } from "vitest";
import { newFolder, root } from "./project.ts";

/** What the script prints about reports, and its exit code. */
function summary(...reports: string[]): string {
  const folder = newFolder(Object.fromEntries(reports.map((report, n) => [`${n}.json`, report])));
  const files = reports.map((_, n) => path.join(folder, `${n}.json`));
  const script = path.join(root, "scripts/test-summary.cjs");
  const { stdout, status } = spawnSync(process.execPath, [script, ...files], { encoding: "utf8", cwd: "/" });
  return `${stdout}${status}`;
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

test("the summary adds up the tests of all reports, skipped ones too, and ends with 0", () => {
  const other = report("passed", "passed", "pending", "skipped", "todo");
  expect(summary(good, other)).toBe("3 passed, 0 failed, 3 skipped\n0");
});

test("a failed test is named with its reason, and makes the summary end with 1", () => {
  const reason = "failed: test/0.test.ts > test 1\n  expected 50\n  to be 4\n";
  expect(summary(good, report("failed", "passed", "failed"))).toBe(`${reason}3 passed, 1 failed\n1`);
});

test("a file that cannot be loaded, whose set-up fails or whose report cannot be read, and a run without tests end with 1", () => {
  const unloaded = "failed: test/0.test.ts\n  it cannot be loaded\n";
  expect(summary(report("failed"))).toBe(`${unloaded}0 passed, 1 failed\n1`);
  expect(summary(report("failed", "skipped"))).toBe(`${unloaded}0 passed, 1 failed, 1 skipped\n1`);
  expect(summary(good, "no JSON")).toMatch(/^failed: .*1\.json\n[\s\S]*2 passed, 1 failed\n1$/);
  expect(summary("{}")).toBe("no test ran\n0 passed, 0 failed\n1");
});
