import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";
import { LongWaitsFirst } from "./test/support/sequence.ts";

/** What `npm run faults` and `npm run screenshots` run, by their modes. */
const INCLUDED: Record<string, string> = {
  full: "test/faults/**/*.test.ts",
  screenshots: "test/web/every-page.test.ts",
};

// Neither the tests' processes nor the programs that they start, the service above all, compile the same code each time.
process.env.NODE_COMPILE_CACHE ??= fileURLToPath(new URL(".cache/compiled", import.meta.url));

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
    // One more than the smallest machine has cores: much of what tests do is waiting.
    maxWorkers: 3,
    sequence: { sequencer: LongWaitsFirst },
    // A busy machine takes its time; what has come true is seen at once all the same.
    testTimeout: 60_000,
    hookTimeout: 180_000,
    expect: { poll: { timeout: 20_000, interval: 50 } },
    reporters: ["default", ["json", { outputFile: "test/results/report.json" }]],
  },
}));
