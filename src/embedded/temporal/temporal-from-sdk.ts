import { readdir } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import type { Progress } from "../../process/progress.ts";
import { runDownload } from "./watched-download.ts";

/** The idle timeout of the download, in milliseconds. */
export const SDK_IDLE_MS = 10_000;

/**
 * Downloads the SDK's default CLI into `workFolder` (empty), in a child process that can be killed, because the SDK
 * has no way to cancel.
 *
 * @param idleMs the idle timeout, in milliseconds
 * @returns the path of the program
 * @throws Error if the download fails or the timeout expires
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
  // The name of a complete download. It may exist even if the server started for the download failed.
  const name = (await readdir(workFolder)).find((entry) => /^temporal-cli-.*(?<!\.downloading)$/.test(entry));
  if (name === undefined) throw failure ?? new Error("the SDK downloaded no program");
  return path.join(workFolder, name);
}
