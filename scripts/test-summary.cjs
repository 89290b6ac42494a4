// Prints `N passed, N failed` from a test run's JSON report; exits 1 when any failed or none ran. Plain JavaScript,
// so that it works even if `npm install` failed.
"use strict";

const { readFileSync } = require("node:fs");

function summarise(report) {
  const counts = { passed: 0, failed: 0, skipped: 0 };
  for (const file of report.testResults || []) {
    const tests = file.assertionResults || [];
    for (const test of tests) {
      if (test.status === "passed" || test.status === "failed") counts[test.status] += 1;
      else counts.skipped += 1;
    }
    // A file that failed to load, or whose set-up failed, contains no failed test.
    if (file.status === "failed" && !tests.some((test) => test.status === "failed")) counts.failed += 1;
  }
  return counts;
}

let counts = { passed: 0, failed: 0, skipped: 0 };
const file = process.argv[2] || "test/results/report.json";
try {
  counts = summarise(JSON.parse(readFileSync(file, "utf8")));
} catch (error) {
  console.log(`there is no report of the tests: ${error.message}`);
}
if (counts.passed + counts.failed === 0) console.log("no test ran");
const skipped = counts.skipped > 0 ? `, ${counts.skipped} skipped` : "";
console.log(`${counts.passed} passed, ${counts.failed} failed${skipped}`);
process.exit(counts.failed > 0 || counts.passed === 0 ? 1 : 0);
