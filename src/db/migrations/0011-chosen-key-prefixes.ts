import type { Knex } from "knex";

/**
 * At most four characters of a key that an operator chose (`ADMIN_KEY`) are stored in clear text. Keys that the service
 * makes begin with `whk_`; eight of their 43 random characters may be shown.
 */
export async function up(knex: Knex): Promise<void> {
  await knex.raw("update api_keys set prefix = left(prefix, 4) where not starts_with(prefix, 'whk_')");
}

/** Migrations only go forward: a rollback of data-bearing tables is a restore from backup. */
export async function down(): Promise<void> {
  throw new Error("migrations only go forward; restore a backup instead");
}
