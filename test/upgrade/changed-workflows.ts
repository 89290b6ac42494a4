import { cp, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { bundleWorkflowCode, DefaultLogger } from "@temporalio/worker";

const PROJECT = fileURLToPath(new URL("../..", import.meta.url));
const FILE = "dispatch-pending-deliveries.ts";

/** An activity before everything else that a run does. */
export const ASK_FIRST = {
  before: "    if (!input.firstAttemptsDone) await makeFirstAttempts(",
  insert: "await retries.ask();",
};
/** An activity before a run tries to close, which is what runs that wait for a retry have still to do. */
export const ASK_LAST = {
  before: "      const closing = await closeRun(key);",
  insert: "await retries.ask();",
};

/** A statement to be inserted before a line of the dispatch workflow. */
export type Change = typeof ASK_FIRST;

/** The same change, made only by runs that have not passed it: `patched(id)` guards it. */
export function behindPatch(id: string, { before, insert }: Change): Change {
  return { before, insert: `if (patched("${id}")) ${insert}` };
}

/** Bundles a copy of the workflows that has the changes, as a later release would have them. */
export async function bundleChanged(...changes: Change[]): Promise<{ code: string }> {
  // Within the project, so that packages are found.
  await mkdir(path.join(PROJECT, ".cache"), { recursive: true });
  const folder = await mkdtemp(path.join(PROJECT, ".cache/changed-workflows-"));
  try {
    await cp(path.join(PROJECT, "workflows"), folder, { recursive: true });
    let source = await readFile(path.join(folder, FILE), "utf8");
    for (const { before, insert } of changes) {
      if (source.split(before).length !== 2) throw new Error(`${FILE} does not have this once: ${before}`);
      source = source.replace(before, `${insert}\n${before}`);
    }
    await writeFile(path.join(folder, FILE), `import { patched } from "@temporalio/workflow";\n${source}`);
    return await bundleWorkflowCode({
      workflowsPath: path.join(folder, "index.ts"),
      logger: new DefaultLogger("ERROR"),
    });
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
