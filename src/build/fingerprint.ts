import { createHash } from "node:crypto";
import { glob, readFile } from "node:fs/promises";
import path from "node:path";

/**
 * Tells whether what was built from files is built from what they are now: a hash of their names and contents. Not of
 * their times: a checkout or a copy makes new ones, and not always later ones.
 *
 * @param patterns globs below `root`; one that nothing matches adds nothing
 */
export async function fingerprintOf(root: string, patterns: readonly string[]): Promise<string> {
  const files: string[] = [];
  for await (const file of glob(patterns, { cwd: root })) files.push(file);
  const hash = createHash("sha256");
  for (const file of files.sort()) {
    hash.update(`${file}\0`).update(await readFile(path.join(root, file)));
  }
  return hash.digest("hex");
}
