import { randomBytes } from "node:crypto";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { count, type Db, rows } from "./db/database.ts";
import { createSecretBox } from "./db/secret-box.ts";

/** The file in DATA_DIR that holds the key which seals signing secrets, where the environment gives none. */
const SECRET_KEY_FILE = "secret-key";
/** The file in DATA_DIR that holds the first administrator's API key. */
export const ADMIN_KEY_FILE = "admin-key";

/**
 * The key that seals signing secrets: the given one, or the one made at the first start with an embedded database.
 *
 * @returns 32 bytes
 */
export async function findSecretKey(given: Buffer | undefined, dataDir: string): Promise<Buffer> {
  if (given) return given;
  const text = await readOrMake(path.join(dataDir, SECRET_KEY_FILE), () =>
    randomBytes(32).toString("base64"),
  );
  const key = Buffer.from(text, "base64");
  if (key.length !== 32)
    throw new Error(
      `${path.join(dataDir, SECRET_KEY_FILE)} is damaged: it must hold 32 bytes as base64; restore it`,
    );
  return key;
}

/** The name of the row that tells whether a key is this database's. */
const CHECK = "secret-key-check";

/**
 * Makes sure that the key is the one this database's secrets were sealed with; the first key it ever sees is.
 *
 * @throws Error telling what to do; without this check, deliveries would fail one by one
 */
export async function checkSecretKey(db: Db, key: Buffer): Promise<void> {
  const box = createSecretBox(key);
  await count(db, "insert into settings (name, value) values (:name, :value) on conflict do nothing", {
    name: CHECK,
    value: box.seal(CHECK, CHECK).toString("base64"),
  });
  const [row] = await rows<{ value: string }>(db, "select value from settings where name = :name", {
    name: CHECK,
  });
  try {
    box.open(Buffer.from(row?.value ?? "", "base64"), CHECK);
  } catch (cause) {
    throw new Error(
      "SECRET_KEY is not the one this database's signing secrets were sealed with; set that one again, in every process",
      { cause },
    );
  }
}

/** The text of a 0600 file, made when it is not there; safe when two make it at once. */
async function readOrMake(file: string, make: () => string): Promise<string> {
  await mkdir(path.dirname(file), { recursive: true, mode: 0o700 });
  try {
    await writeFile(file, `${make()}\n`, { mode: 0o600, flag: "wx" });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  }
  return (await readFile(file, "utf8")).trim();
}

/** Writes a secret to a 0600 file, replacing what was there. */
export async function writeSecretFile(file: string, secret: string): Promise<void> {
  await mkdir(path.dirname(file), { recursive: true, mode: 0o700 });
  await writeFile(file, `${secret}\n`, { mode: 0o600 });
}

/** The text of a secret file, or null when there is none. */
export async function readSecretFile(file: string): Promise<string | null> {
  try {
    return (await readFile(file, "utf8")).trim();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw error;
  }
}
