import { chmod, lstat, mkdir, realpath } from "node:fs/promises";
import path from "node:path";

/** The user that a server runs as, if different from the current user. */
export interface Owner {
  uid: number;
  gid: number;
}

/** `nobody`: an existing unprivileged user with a name, which initdb requires. */
export const NOBODY: Owner = { uid: 65_534, gid: 65_534 };

/** The parent of the folders that root's servers share with `NOBODY`. Survives a reboot. */
const SHARED = "/var/lib/webhook-service";

/** Whether the current user is root (never on Windows). */
export function isRoot(): boolean {
  return process.getuid?.() === 0;
}

/** Whether `owner` may enter (or execute, or read) `target` and all its parent folders, according to their modes. */
export async function canReach(owner: Owner, target: string): Promise<boolean> {
  for (let place = await realpath(target); ; place = path.dirname(place)) {
    const { uid, gid, mode } = await lstat(place);
    const shift = uid === owner.uid ? 6 : gid === owner.gid ? 3 : 0;
    if (((mode >> shift) & 0o1) === 0) return false;
    if (place === path.dirname(place)) return true;
  }
}

/**
 * A folder `name` owned by root that all users can enter.
 *
 * @throws Error if it cannot be created
 */
export async function sharedFolder(name: string): Promise<string> {
  const folder = path.join(SHARED, name);
  try {
    await mkdir(folder, { recursive: true });
    // A strict umask closes new folders.
    for (const place of [SHARED, folder]) await chmod(place, 0o755);
  } catch (cause) {
    throw new Error(
      `no folder for the embedded PostgreSQL: ${(cause as Error).message}. Set DATABASE_URL, or do not run as root`,
      { cause },
    );
  }
  return folder;
}
