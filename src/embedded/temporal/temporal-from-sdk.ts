import { readdir } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import type { Progress } from "../../process/progress.ts";
import { runDownload } from "./watched-download.ts";

/** How long it may send nothing. */
export const SDK_IDLE_MS = 10_000;

/**
 * Lets Temporal's SDK download its default CLI into `workFolder` (empty, ours), in a process that can be killed:
 * the SDK itself cannot be told to give up.
 *
 * @param idleMs how long it may send nothing
 * @returns the path of the program.
 * @throws Error when it fails, or no byte arrives for so long.
 */
export async function downloadWithSdk(
  workFolder: string,
  progress: Progress,
  idleMs: number,
): Promise<string> {
  const script = fileURLToPath(new URL("./temporal-sdk-download.ts", import.meta.url));
  const failure = await runDownload({
    label: "the Temporal CLI",
    file: process.execPath,
    args: [script, workFolder],
    folder: workFolder,
    idleMs,
    progress,
  }).then(
    () => null,
    (error: Error) => error,
  );
  // The name it is given when it is whole. It may be there though the server started to get it did not come up.
  const name = (await readdir(workFolder)).find((entry) => /^temporal-cli-.*(?<!\.downloading)$/.test(entry));
  if (name === undefined) throw failure ?? new Error("the SDK left no program");
  return path.join(workFolder, name);
}
