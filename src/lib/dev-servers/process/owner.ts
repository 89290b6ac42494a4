import { lstat, realpath } from "node:fs/promises";
import path from "node:path";

/** The user that a server runs as, if different from the current user. */
export interface Owner {
  uid: number;
  gid: number;
}

/**
 * An existing unprivileged user with a name, which initdb requires. This is the id of `nobody` on most systems; on
 * macOS, 1 is `daemon`.
 */
export const NOBODY: Owner =
  process.platform === "darwin" ? { uid: 1, gid: 1 } : { uid: 65_534, gid: 65_534 };

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
