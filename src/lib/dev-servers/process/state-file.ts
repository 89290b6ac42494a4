import { randomUUID } from "node:crypto";
import { mkdir, open, readFile, realpath, rename, rm, writeFile } from "node:fs/promises";
import path from "node:path";
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
  try {
    await writeFile(draft, `${JSON.stringify(value, null, 2)}\n`, { mode: 0o600 });
    await rename(draft, file);
  } finally {
    await rm(draft, { force: true });
  }
}

/** The secret stored in `file`; null if it does not exist or is empty, as a full disk or a power failure may leave it. */
export async function readSecretFile(file: string): Promise<string | null> {
  return (await readText(file))?.trim() || null;
}

/**
 * The secret stored in `file`. If there is none, generates it with `make` and stores it with mode 0600. Once this
 * resolves, the secret survives a power failure; if it rejects, `file` is unchanged. Only one caller per file at a time
 * (`lockDataDir`).
 */
export async function keepSecret(file: string, make: () => string | Promise<string>): Promise<string> {
  const kept = await readSecretFile(file);
  if (kept !== null) return kept;
  const secret = await make();
  const draft = `${file}.${randomUUID()}`;
  try {
    await writeFile(draft, `${secret}\n`, { mode: 0o600, flush: true });
    await rename(draft, file);
  } finally {
    await rm(draft, { force: true });
  }
  await flushFolder(path.dirname(file));
  return secret;
}

/** Makes a rename in a folder survive a power failure. Windows and some file systems cannot; there it does nothing. */
async function flushFolder(folder: string): Promise<void> {
  const handle = await open(folder).catch(() => null);
  await handle?.sync().catch(() => {});
  await handle?.close();
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
