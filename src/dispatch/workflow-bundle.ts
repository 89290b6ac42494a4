import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

/** The bundled code of the workflows, created by `npm run build`. */
export const WORKFLOW_BUNDLE = fileURLToPath(new URL("../../workflows/dist/index.js", import.meta.url));

/**
 * The path of the bundled workflow code.
 *
 * @throws Error if it is not built
 */
export function builtWorkflows(): { codePath: string } {
  if (existsSync(WORKFLOW_BUNDLE)) return { codePath: WORKFLOW_BUNDLE };
  throw new Error("the workflows are not built; run `npm run build`, as `npm start` does first");
}
