import { fileURLToPath } from "node:url";
import { defineConfig, type TestProjectInlineConfiguration } from "vitest/config";
import { LongWaitsFirst } from "./test/support/sequence.ts";

/** What other programs stand between the service and its parts; they are not on every machine. */
const DEPLOY = "test/deploy/**/*.test.ts";
/** What `npm run faults`, `npm run fuzz`, `npm run test:deploy` and others run, by their modes. */
const INCLUDED: Record<string, string[]> = {
  full: [
    "test/faults/**/*.test.ts",
    "test/db/queue/storage-model.test.ts",
    "test/delivery/limits/scheduler.test.ts",
    "test/upgrade/open-runs.test.ts",
    "test/upgrade/side-by-side.ts",
  ],
  screenshots: ["test/web/every-page.test.ts"],
  fuzz: ["test/api/limits/rpc-fuzz.test.ts"],
  deploy: [DEPLOY],
  "record-histories": ["test/upgrade/record-histories.ts"],
};
/**
 * Files that need a process each. All others leave nothing behind in theirs, so that it can go on to the next file:
 * starting one and loading the service takes a second and a half.
 */
const APART = ["test/{embedded,process}/**/*.test.ts", "test/faults/small-memory.test.ts"];

// Neither the tests' processes nor the programs that they start, the service above all, compile the same code each time.
process.env.NODE_COMPILE_CACHE ??= fileURLToPath(new URL(".cache/compiled", import.meta.url));

/** Tests that share a process with others, or not. */
function project(name: string, isolate: boolean, files: { include: string[]; exclude?: string[] }) {
  return {
    test: {
      ...files,
      name,
      isolate,
      pool: "forks",
      // Node runs TypeScript itself; the code is the same that the service runs.
      experimental: { viteModuleRunner: false, nodeLoader: false },
      // A busy machine takes its time; what has come true is seen at once all the same.
      testTimeout: 60_000,
      hookTimeout: 180_000,
      expect: { poll: { timeout: 20_000, interval: 50 } },
    },
  } satisfies TestProjectInlineConfiguration;
}

export default defineConfig(({ mode }) => {
  const included = INCLUDED[mode];
  return {
    test: {
      projects: included
        ? [project("apart", true, { include: included })]
        : [
            project("apart", true, { include: APART }),
            project("together", false, { include: ["test/**/*.test.ts"], exclude: [...APART, DEPLOY] }),
          ],
      globalSetup: "test/support/run-setup.ts",
      // One more than the smallest machine has cores: two workers leave a third of two cores idle.
      maxWorkers: 3,
      sequence: { sequencer: LongWaitsFirst },
      reporters: ["default", ["json", { outputFile: "test/results/report.json" }]],
    },
  };
});
