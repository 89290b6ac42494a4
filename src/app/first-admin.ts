import path from "node:path";
import { isDeepStrictEqual } from "node:util";
import { audited, OPERATOR } from "../audit/index.ts";
import type { Config } from "../config/index.ts";
import {
  ALL_PERMISSIONS,
  createApiKey,
  ensureAdminKey,
  hasApiKeys,
  keyCreated,
  keyRestored,
} from "../keys/index.ts";
import { keepSecret } from "../lib/dev-servers/index.ts";
import type { Db } from "../lib/pg/index.ts";
import { ADMIN_KEY_FILE } from "./instance-secrets.ts";

/**
 * Creates a key with all permissions. Returns its secret, which is not stored anywhere.
 *
 * @param chosen the secret; defaults to a new one
 */
export async function createAdminKey(db: Db, name = "Administrator", chosen?: string): Promise<string> {
  return audited(db, OPERATOR, async (trx, record) => {
    const { key, secret } = await createApiKey(trx, { name, permissions: ALL_PERMISSIONS }, chosen);
    await record(keyCreated(key));
    return secret;
  });
}

/**
 * Ensures that an administrator key exists. With ADMIN_KEY, creates that key. Otherwise, with an embedded database,
 * creates a key at the first start and writes it to DATA_DIR/admin-key. A file from before the database, which has no
 * keys yet, keeps its key: the database was deleted, or DATA_DIR was copied without it.
 *
 * @returns the path of that file, if it exists
 */
export async function ensureFirstAdmin(
  db: Db,
  { adminKey, dataDir, database }: Pick<Config, "adminKey" | "dataDir" | "database">,
): Promise<string | undefined> {
  if (adminKey !== undefined) {
    await audited(db, OPERATOR, async (trx, record) => {
      const { before, key } = await ensureAdminKey(trx, adminKey);
      if (!before) await record(keyCreated(key));
      else if (!isDeepStrictEqual(before, key)) await record(keyRestored(before, key));
    });
    return undefined;
  }
  if (database.url !== undefined) return undefined;
  const file = path.resolve(dataDir, ADMIN_KEY_FILE);
  const secret = await keepSecret(file, () => createAdminKey(db));
  if (!(await hasApiKeys(db))) await createAdminKey(db, undefined, secret);
  return file;
}
