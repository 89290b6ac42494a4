import { randomBytes } from "node:crypto";
import path from "node:path";
import { keepSecret } from "../lib/dev-servers/index.ts";

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
  const file = path.join(dataDir, SECRET_KEY_FILE);
  const text = await keepSecret(file, () => randomBytes(32).toString("base64"));
  const key = Buffer.from(text, "base64");
  if (key.length !== 32)
    throw new Error(`${file} is damaged: it must contain 32 bytes as base64; restore it from a backup`);
  return key;
}
