// Prints `N passed, N failed` from a test run's JSON report; exits 1 when any failed or none ran. Plain JavaScript,
// so that it works even if `npm install` failed.
//
//   node scripts/test-summary.cjs [REPORT] [AGAIN]         AGAIN: the report of a second run of the failed files, if any
//   node scripts/test-summary.cjs --failed-files [REPORT]  prints the files with failed tests, one per line
"use strict";

const { existsSync, readFileSync } = require("node:fs");
const path = require("node:path");
const { stripVTControlCharacters } = require("node:util");

const REPORT = "test/results/report.json";
const MAX_REASON_LINES = 12;

/** The files of a report, by name. */
function filesOf(report) {
  return new Map(
    (JSON.parse(readFileSync(report, "utf8")).testResults || []).map((file) => [file.name, file]),
  );
}

function testsOf(file, status) {
  return (file.assertionResults || []).filter((test) => test.status === status);
}

/** The first lines of why a test, or a file without failed tests, failed, indented. */
function reasonOf({ failureMessages, message }) {
  // Without the escape sequences of colours.
  const text = stripVTControlCharacters((failureMessages || [message || ""]).join("\n")).trim();
  const lines = text === "" ? [] : text.split("\n").slice(0, MAX_REASON_LINES);
  return lines.map((line) => `  ${line}`);
}

function summarise(files) {
  const counts = { passed: 0, failed: 0, skipped: 0 };
  for (const file of files) {
    const all = (file.assertionResults || []).length;
    const passed = testsOf(file, "passed").length;
    const failed = testsOf(file, "failed").length;
    counts.passed += passed;
    // A file that failed to load, or whose set-up failed, contains no failed test.
    counts.failed += file.status === "failed" ? Math.max(failed, 1) : failed;
    counts.skipped += all - passed - failed;
  }
  return counts;
}

function printFailedFiles(report) {
  for (const file of filesOf(report).values()) {
    if (summarise([file]).failed > 0) console.log(path.relative(process.cwd(), file.name));
  }
}

function printSummary(report, again) {
  let counts = { passed: 0, failed: 0, skipped: 0 };
  try {
    const files = filesOf(report);
    if (again && existsSync(again)) {
      for (const [name, file] of filesOf(again)) {
        const before = files.get(name) || {};
        const failed = testsOf(before, "failed");
        for (const test of failed.length > 0 ? failed : [before]) {
          const title = test.fullName === undefined ? "" : ` > ${test.fullName}`;
          console.log(
            `failed beside others, then run again alone: ${path.relative(process.cwd(), name)}${title}`,
          );
          for (const line of reasonOf(test)) console.log(line);
        }
        files.set(name, file);
      }
    }
    counts = summarise(files.values());
  } catch (error) {
    console.log(`there is no report of the tests: ${error.message}`);
  }
  if (counts.passed + counts.failed === 0) console.log("no test ran");
  const skipped = counts.skipped > 0 ? `, ${counts.skipped} skipped` : "";
  console.log(`${counts.passed} passed, ${counts.failed} failed${skipped}`);
  process.exit(counts.failed > 0 || counts.passed === 0 ? 1 : 0);
}

const args = process.argv.slice(2);
if (args[0] === "--failed-files") printFailedFiles(args[1] || REPORT);
else printSummary(args[0] || REPORT, args[1]);
