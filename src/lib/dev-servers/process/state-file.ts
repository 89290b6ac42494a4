import { randomUUID } from "node:crypto";
import { mkdir, open, readFile, realpath, rename, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { isRoot } from "./owner.ts";

/** The JSON content of `file`; empty if it cannot be read or is not JSON. */
export async function readState<T>(file: string): Promise<Partial<T>> {
  try {
    return (JSON.parse(await readFile(file, "utf8")) as T | null) ?? {};
  } catch {
    return {};
  }
}

/** Atomically replaces `file` with `value` as JSON, readable only by its owner. */
export async function writeState(file: string, value: object): Promise<void> {
  await replaceFile(file, JSON.stringify(value, null, 2));
}

/** The secret stored in `file`; null if it does not exist or is empty, as a full disk or a power failure may leave it. */
export async function readSecretFile(file: string): Promise<string | null> {
  try {
    return (await readFile(file, "utf8")).trim() || null;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw error;
  }
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
  await replaceFile(file, secret);
  return secret;
}

async function replaceFile(file: string, text: string): Promise<void> {
  const draft = `${file}.${randomUUID()}`;
  try {
    await writeFile(draft, `${text}\n`, { mode: 0o600, flush: true });
    await rename(draft, file);
  } finally {
    await rm(draft, { force: true });
  }
  // So that the rename survives a power failure. Some file systems cannot open or flush a folder.
  const folder = await open(path.dirname(file)).catch(() => null);
  await folder?.sync().catch(() => {});
  await folder?.close();
}

/** Creates `dataDir`, closed to others, if it does not exist. Returns its real path. */
export async function ensureDataDir(dataDir: string): Promise<string> {
  // As root, the database runs as another user, who must be able to traverse the folder, but not to list or read it.
  await mkdir(dataDir, { recursive: true, mode: isRoot() ? 0o711 : 0o700 });
  return realpath(dataDir);
}
