import { lstat, realpath } from "node:fs/promises";
import path from "node:path";

/** The user a server runs as, when that is not the one we run as. */
export interface Owner {
  uid: number;
  gid: number;
}

/**
 * A user without rights of its own that exists: initdb wants a name for it. `nobody` has this number nearly
 * everywhere but on macOS, where 1 is `daemon`.
 */
export const NOBODY: Owner =
  process.platform === "darwin" ? { uid: 1, gid: 1 } : { uid: 65_534, gid: 65_534 };

/** Whether we are root (never on Windows). */
export function isRoot(): boolean {
  return process.getuid?.() === 0;
}

/** Whether `owner` may enter (or run, or read) `target` and every folder above it, by their modes. */
export async function canReach(owner: Owner, target: string): Promise<boolean> {
  for (let place = await realpath(target); ; place = path.dirname(place)) {
    const { uid, gid, mode } = await lstat(place);
    const shift = uid === owner.uid ? 6 : gid === owner.gid ? 3 : 0;
    if (((mode >> shift) & 0o1) === 0) return false;
    if (place === path.dirname(place)) return true;
  }
}
