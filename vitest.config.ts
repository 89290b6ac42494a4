import { defineConfig } from "vitest/config";

export default defineConfig(({ mode }) => ({
  test: {
    // `npm run faults` has mode "full".
    include: [mode === "full" ? "test/faults/**/*.test.ts" : "test/**/*.test.ts"],
    // One of each a run, whatever the files need; they keep apart by database and by task queue.
    globalSetup: [
      "test/support/postgres-setup.ts",
      "test/support/temporal-setup.ts",
      "test/support/page-setup.ts",
      "test/support/browser-setup.ts",
    ],
    pool: "forks",
    maxWorkers: 2,
    testTimeout: 30_000,
    hookTimeout: 60_000,
    // A busy machine takes its time; what has come true is seen at once all the same.
    expect: { poll: { timeout: 10_000, interval: 50 } },
    reporters: ["default", ["json", { outputFile: "test/results/report.json" }]],
  },
}));
