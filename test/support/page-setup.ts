import type { TestProject } from "vitest/node";
import { findSettingsPage } from "../../src/build/page-build.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** Folder of the built settings page. */
    settingsPage: string;
  }
}

/** Builds the settings page once for the run, unless it is built from what there is. */
export default async function setup(project: TestProject): Promise<void> {
  const told: string[] = [];
  const folder = await findSettingsPage((line) => {
    told.push(line);
    console.log(line);
  });
  if (!folder) throw new Error(told.join("\n"));
  project.provide("settingsPage", folder);
}
