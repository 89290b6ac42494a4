import { defineConfig } from "vitest/config";

/** What `npm run faults` and `npm run screenshots` run, by their modes. */
const INCLUDED: Record<string, string> = {
  full: "test/faults/**/*.test.ts",
  screenshots: "test/web/every-page.test.ts",
};

export default defineConfig(({ mode }) => ({
  test: {
    include: [INCLUDED[mode] ?? "test/**/*.test.ts"],
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
