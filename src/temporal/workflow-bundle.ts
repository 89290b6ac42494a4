import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

/** The workflows' code as Temporal's workers load it; `npm run build` makes it. */
export const WORKFLOW_BUNDLE = fileURLToPath(new URL("../../workflows/dist/index.js", import.meta.url));

/**
 * The file with the workflows' code.
 *
 * @throws Error when it was not built
 */
export function builtWorkflows(): { codePath: string } {
  if (existsSync(WORKFLOW_BUNDLE)) return { codePath: WORKFLOW_BUNDLE };
  throw new Error("the workflows are not built; run `npm run build`, as `npm start` does first");
}
