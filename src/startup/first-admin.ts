import path from "node:path";
import type { Config } from "../config/config.ts";
import type { Db } from "../db/database.ts";
import { ALL_PERMISSIONS, createApiKey, ensureAdminKey } from "../db/keys/api-keys.ts";
import { ADMIN_KEY_FILE, readSecretFile, writeSecretFile } from "./instance-secrets.ts";

/** Makes a key that may do everything; answers its secret, which is nowhere stored. */
export async function createAdminKey(db: Db, name = "Administrator"): Promise<string> {
  const { secret } = await createApiKey(db, { name, permissions: ALL_PERMISSIONS });
  return secret;
}

/**
 * Sees to it that a first administrator can get in: makes ADMIN_KEY exist when it is set, and otherwise, with an
 * embedded database, makes a key at the first start and writes it to DATA_DIR/admin-key.
 *
 * @returns the path of that file, where there is one
 */
export async function ensureFirstAdmin(
  db: Db,
  { adminKey, dataDir, database }: Pick<Config, "adminKey" | "dataDir" | "database">,
): Promise<string | undefined> {
  if (adminKey !== undefined) {
    await ensureAdminKey(db, adminKey);
    return undefined;
  }
  if (database.url !== undefined) return undefined;
  const file = path.resolve(dataDir, ADMIN_KEY_FILE);
  if ((await readSecretFile(file)) === null) await writeSecretFile(file, await createAdminKey(db));
  return file;
}
