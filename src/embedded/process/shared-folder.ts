import { chmod, lstat, mkdir } from "node:fs/promises";
import os from "node:os";
import path from "node:path";

/**
 * A folder `name` of root's that every user can enter: below /var/lib, which outlives a reboot, else below the
 * folder for temporary files.
 *
 * @throws Error when neither can be made, or a folder there is not root's alone to change.
 */
export async function sharedFolder(name: string): Promise<string> {
  const failures: string[] = [];
  for (const parent of ["/var/lib", os.tmpdir()]) {
    try {
      return await makeSafely(path.join(parent, "webhook-service", name));
    } catch (error) {
      failures.push((error as Error).message);
    }
  }
  throw new Error(
    `no folder for the embedded PostgreSQL: ${failures.join("; ")}. Set DATABASE_URL, or do not run as root`,
  );
}

async function makeSafely(folder: string): Promise<string> {
  await mkdir(folder, { recursive: true, mode: 0o755 });
  for (const place of [path.dirname(folder), folder]) {
    // In a folder for temporary files anybody could have made it first, to slip in programs of theirs.
    const { uid, mode } = await lstat(place);
    if (uid !== 0 || (mode & 0o022) !== 0) throw new Error(`${place} is not root's alone to change`);
    // A strict umask took from the mode asked for above.
    if ((mode & 0o055) !== 0o055) await chmod(place, 0o755);
  }
  return folder;
}
