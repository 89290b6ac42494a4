import { fileURLToPath } from "node:url";
import { defineConfig, type TestProjectInlineConfiguration } from "vitest/config";
import { LOOK_EVERY_MS, PATIENCE_MS } from "./test/support/patience.ts";
import { LongWaitsFirst } from "./test/support/run/sequence.ts";

/** What is slow by nature: `npm run test:all` runs it, and nothing else. */
const SLOW = ["test/{faults,upgrade}/**/*.test.ts", "test/**/*.slow.test.ts"];
/** Needs programs that not every machine has. */
const DEPLOY = "test/deploy/**/*.test.ts";
/** What other commands run, by their modes. */
const INCLUDED: Record<string, string[]> = {
  full: [
    "test/faults/**/*.test.ts",
    "test/queue/storage-model/*.test.ts",
    "test/delivery/limits/scheduler.test.ts",
    "test/upgrade/{open-runs,customers}.test.ts",
    "test/upgrade/{side-by-side,own-event-types}.ts",
  ],
  screenshots: ["test/web/every-page.slow.test.ts"],
  fuzz: ["test/api/limits/rpc-fuzz.slow.test.ts"],
  deploy: [DEPLOY],
  "record-histories": ["test/upgrade/record-histories.ts"],
};
/** Modes whose tests take as long as they need: those of a release, which measure or try much. */
const LONG = ["full", "fuzz", "deploy", "record-histories"];
const LONG_MS = 4 * 3_600_000;

// Neither the tests' processes nor the programs that they start, the service above all, compile the same code each time.
process.env.NODE_COMPILE_CACHE ??= fileURLToPath(new URL(".cache/compiled", import.meta.url));

/**
 * A project whose files each have a process, or share one: they leave nothing behind in it, and to start a process and load
 * the service takes a second and a half.
 */
function project(
  name: string,
  isolate: boolean,
  include: string[],
  { exclude = [], limitMs = 2 * PATIENCE_MS }: { exclude?: string[]; limitMs?: number } = {},
) {
  return {
    test: {
      include,
      exclude,
      name,
      isolate,
      pool: "forks",
      // Node runs TypeScript itself; the code is the same that the service runs.
      experimental: { viteModuleRunner: false, nodeLoader: false },
      runner: "test/support/run/runner.ts",
      // Longer than what a test waits for, so that the failure says what did not come true.
      testTimeout: limitMs,
      hookTimeout: limitMs,
      expect: { poll: { timeout: PATIENCE_MS, interval: LOOK_EVERY_MS } },
    },
  } satisfies TestProjectInlineConfiguration;
}

/** The settings page's component tests: in jsdom, with React as the service serves it. They start nothing. */
const COMPONENTS = {
  // Node strips types, and knows no JSX.
  oxc: { jsx: { runtime: "automatic", development: false } },
  test: {
    ...project("components", false, ["test/web/**/*.test.tsx"]).test,
    experimental: { viteModuleRunner: true },
    env: { NODE_ENV: "production", TZ: "Europe/Berlin" },
  },
} satisfies TestProjectInlineConfiguration;

function projectsOf(mode: string): TestProjectInlineConfiguration[] {
  const included = INCLUDED[mode];
  if (included) return [project("apart", true, included, LONG.includes(mode) ? { limitMs: LONG_MS } : {})];
  if (mode === "all") return [project("together", false, SLOW)];
  return [COMPONENTS, project("together", false, ["test/**/*.test.ts"], { exclude: [...SLOW, DEPLOY] })];
}

export default defineConfig(({ mode }) => {
  return {
    test: {
      projects: projectsOf(mode),
      globalSetup: "test/support/run/setup.ts",
      // Node runs the set-up, too.
      experimental: { viteModuleRunner: false, nodeLoader: false },
      // One more than the smallest machine has cores: two workers leave a third of two cores idle.
      maxWorkers: 3,
      sequence: { sequencer: LongWaitsFirst },
      reporters: ["default", ["json", { outputFile: `test/results/${mode}.json` }]],
    },
  };
});
