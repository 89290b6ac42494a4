import path from "node:path";
import { fileURLToPath } from "node:url";
import type { TestProject } from "vitest/node";
import { build, TARGETS } from "../../scripts/build.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** Folder of the built settings page. */
    settingsPage: string;
  }
}

/** Builds the settings page once for the run, unless it is built from what there is. */
export default async function setup(project: TestProject): Promise<void> {
  await build((line) => console.log(line), [TARGETS.PAGE]);
  project.provide(
    "settingsPage",
    path.join(fileURLToPath(new URL("../..", import.meta.url)), TARGETS.PAGE.folder),
  );
}
