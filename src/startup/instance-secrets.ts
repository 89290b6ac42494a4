import { randomBytes } from "node:crypto";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import path from "node:path";

/** The file in DATA_DIR with the key that encrypts signing secrets, if the environment sets none. */
const SECRET_KEY_FILE = "secret-key";
/** The file in DATA_DIR with the first administrator's API key. */
export const ADMIN_KEY_FILE = "admin-key";

/**
 * The key that encrypts signing secrets: the given one, or the one generated at the first start with an embedded
 * database.
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
      `${path.join(dataDir, SECRET_KEY_FILE)} is damaged: it must contain 32 bytes as base64; restore it from a backup`,
    );
  return key;
}

/** The content of a file with mode 0600, created if missing. Safe for concurrent processes. */
async function readOrMake(file: string, make: () => string): Promise<string> {
  await mkdir(path.dirname(file), { recursive: true, mode: 0o700 });
  try {
    await writeFile(file, `${make()}\n`, { mode: 0o600, flag: "wx" });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  }
  return (await readFile(file, "utf8")).trim();
}

/** Writes a secret to a file with mode 0600, replacing its content. */
export async function writeSecretFile(file: string, secret: string): Promise<void> {
  await mkdir(path.dirname(file), { recursive: true, mode: 0o700 });
  await writeFile(file, `${secret}\n`, { mode: 0o600 });
}

/** The content of a secret file; null if it does not exist. */
export async function readSecretFile(file: string): Promise<string | null> {
  try {
    return (await readFile(file, "utf8")).trim();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw error;
  }
}
