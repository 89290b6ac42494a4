import { access, chmod, constants, copyFile, glob, mkdir, mkdtemp } from "node:fs/promises";
import { homedir, tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

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

const root = fileURLToPath(new URL("../../..", import.meta.url));

/**
 * Has the embedded servers of the run find the Temporal CLI that a start of the service downloaded into `.data`, as it does
 * if the home directory cannot be written.
 */
export async function useDownloadedCli(): Promise<void> {
  const home = process.env.XDG_CACHE_HOME || path.join(homedir(), ".cache");
  const shared = path.join(home, "webhook-service");
  try {
    await mkdir(shared, { recursive: true });
    return await access(shared, constants.W_OK);
  } catch {
    // As the service, which then downloads into DATA_DIR.
  }
  process.env.XDG_CACHE_HOME = path.join(root, ".cache");
  const cache = path.join(root, ".cache/webhook-service");
  await mkdir(cache, { recursive: true });
  for await (const file of glob("temporal-*", { cwd: path.join(root, ".data/cache") }))
    await copyFile(path.join(root, ".data/cache", file), path.join(cache, file));
}
