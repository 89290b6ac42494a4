import { chmod, mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";

/**
 * Makes the folder for all temporary files of a run, and has every process that the run starts use it. So TMPDIR also tells
 * which processes belong to the run, the embedded servers included.
 */
export async function makeRunFolder(): Promise<string> {
  const folder = await mkdtemp(path.join(tmpdir(), "webhook-test-"));
  // As root, the run's PostgreSQL is another user's.
  await chmod(folder, 0o711);
  for (const name of ["TMPDIR", "TEMP", "TMP"]) process.env[name] = folder;
  return folder;
}
