import { randomUUID } from "node:crypto";
import { chmod, link, mkdir, readFile, realpath, rename, rm, writeFile } from "node:fs/promises";
import { isRoot } from "./owner.ts";

/** The JSON kept in `file`, or null when there is none or it cannot be read as JSON (a torn or foreign file). */
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

/** Replaces `file` with `value` as JSON, whole or not at all, readable by its owner only. */
export async function writeState(file: string, value: object): Promise<void> {
  const draft = `${file}.${randomUUID()}`;
  await writeFile(draft, `${JSON.stringify(value, null, 2)}\n`, { mode: 0o600 });
  await rename(draft, file);
}

/** The secret kept in `file`, made by `make` and written with mode 0600 when there is none yet. */
export async function keepSecret(file: string, make: () => string): Promise<string> {
  const draft = `${file}.${randomUUID()}`;
  await writeFile(draft, make(), { mode: 0o600 });
  try {
    // A link fails where the name exists, so two starters agree on one secret, and never see half of it.
    await link(draft, file).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== "EEXIST") throw error;
    });
  } finally {
    await rm(draft, { force: true });
  }
  await chmod(file, 0o600);
  return (await readFile(file, "utf8")).trim();
}

/** The text of `file`, or null when there is no such file. Other failures are thrown. */
export async function readText(file: string): Promise<string | null> {
  try {
    return await readFile(file, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw error;
  }
}

/** Makes `dataDir`, closed to others when new, and returns its real path. */
export async function ensureDataDir(dataDir: string): Promise<string> {
  // As root the database runs as somebody else, who must get through to it, and can list and read nothing.
  await mkdir(dataDir, { recursive: true, mode: isRoot() ? 0o711 : 0o700 });
  return realpath(dataDir);
}
