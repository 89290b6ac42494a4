import path from "node:path";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";
import { PATIENCE_MS } from "../../support/patience.ts";

/** A run of the files beside this one, for tests of runs. */
export default defineConfig({
  root: path.join(fileURLToPath(import.meta.url), "../../../.."),
  test: {
    include: ["test/repository/nested/*.part.ts"],
    pool: "forks",
    experimental: { viteModuleRunner: false, nodeLoader: false },
    runner: "test/support/run/runner.ts",
    globalSetup: "test/support/run/setup.ts",
    testTimeout: PATIENCE_MS,
  },
});
