// Prints the failed tests of JSON reports with their reasons, and as its last line `N passed, N failed`; exits 1 when any
// failed or none ran. Plain JavaScript, so that it works even if `npm install` failed.
//
//   node scripts/test-summary.cjs REPORT…
"use strict";

const { readFileSync } = require("node:fs");
const path = require("node:path");
const { stripVTControlCharacters } = require("node:util");

const MAX_REASON_LINES = 12;

/** The first lines of a reason, indented. */
function linesOf(reason) {
  // Without the escape sequences of colours.
  const text = stripVTControlCharacters(reason).trim();
  return text === "" ? [] : text.split("\n", MAX_REASON_LINES).map((line) => `  ${line}`);
}

const counts = { passed: 0, failed: 0, skipped: 0 };

function fail(title, reason) {
  counts.failed += 1;
  console.log([`failed: ${title}`, ...linesOf(reason)].join("\n"));
}

for (const report of process.argv.slice(2)) {
  let files = [];
  try {
    files = JSON.parse(readFileSync(report, "utf8")).testResults || [];
  } catch (error) {
    fail(report, `there is no report of the tests: ${error.message}`);
  }
  for (const { name, status, message, assertionResults: tests = [] } of files) {
    const file = path.relative(process.cwd(), name);
    for (const test of tests) {
      if (test.status === "passed") counts.passed += 1;
      else if (test.status !== "failed") counts.skipped += 1;
      else fail(`${file} > ${test.fullName}`, (test.failureMessages || []).join("\n"));
    }
    // A file that failed to load, or whose set-up failed, contains no failed test.
    if (status === "failed" && !tests.some((test) => test.status === "failed")) fail(file, message || "");
  }
}

if (counts.passed + counts.failed === 0) console.log("no test ran");
const skipped = counts.skipped > 0 ? `, ${counts.skipped} skipped` : "";
console.log(`${counts.passed} passed, ${counts.failed} failed${skipped}`);
process.exit(counts.failed > 0 || counts.passed === 0 ? 1 : 0);
