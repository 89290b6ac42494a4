import { chmod, lstat, mkdir } from "node:fs/promises";
import os from "node:os";
import path from "node:path";

/**
 * A folder `name` owned by root that all users can enter: below /var/lib, which survives a reboot, else below the
 * folder for temporary files.
 *
 * @throws Error if neither can be created, or other users can modify a folder there
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
    // In the folder for temporary files another user could have created it first, to plant programs.
    const { uid, mode } = await lstat(place);
    if (uid !== 0 || (mode & 0o022) !== 0)
      throw new Error(`${place} can be modified by other users than root`);
    // A strict umask may have reduced the mode requested above.
    if ((mode & 0o055) !== 0o055) await chmod(place, 0o755);
  }
  return folder;
}
