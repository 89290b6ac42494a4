import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    // One of each a run, whatever the files need; they keep apart by database and by task queue.
    globalSetup: ["test/support/postgres-setup.ts", "test/support/temporal-setup.ts"],
    pool: "forks",
    maxWorkers: 2,
    testTimeout: 30_000,
    hookTimeout: 60_000,
    reporters: ["default", ["json", { outputFile: "test/results/report.json" }]],
  },
});
