import { randomUUID } from "node:crypto";
import { chmod, link, mkdir, readFile, realpath, rename, rm, writeFile } from "node:fs/promises";
import { isRoot } from "./owner.ts";

/** The JSON content of `file`; null if it does not exist or is not valid JSON (partially written or foreign). */
export async function readState<T>(file: string): Promise<Partial<T> | null> {
  const text = await readText(file);
  if (text === null) return null;
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? (value as Partial<T>) : null;
  } catch {
    return null;
  }
}

/** Atomically replaces `file` with `value` as JSON, readable only by its owner. */
export async function writeState(file: string, value: object): Promise<void> {
  const draft = `${file}.${randomUUID()}`;
  await writeFile(draft, `${JSON.stringify(value, null, 2)}\n`, { mode: 0o600 });
  await rename(draft, file);
}

/** The secret stored in `file`. If there is none, generates it with `make` and stores it with mode 0600. */
export async function keepSecret(file: string, make: () => string): Promise<string> {
  const draft = `${file}.${randomUUID()}`;
  await writeFile(draft, make(), { mode: 0o600 });
  try {
    // Linking fails if the name exists, so concurrent starts agree on one secret and never read a partial one.
    await link(draft, file).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== "EEXIST") throw error;
    });
  } finally {
    await rm(draft, { force: true });
  }
  await chmod(file, 0o600);
  return (await readFile(file, "utf8")).trim();
}

/** The content of `file`; null if it does not exist. Other errors are thrown. */
export async function readText(file: string): Promise<string | null> {
  try {
    return await readFile(file, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw error;
  }
}

/** Creates `dataDir`, closed to others, if it does not exist. Returns its real path. */
export async function ensureDataDir(dataDir: string): Promise<string> {
  // As root, the database runs as another user, who must be able to traverse the folder, but not to list or read it.
  await mkdir(dataDir, { recursive: true, mode: isRoot() ? 0o711 : 0o700 });
  return realpath(dataDir);
}
