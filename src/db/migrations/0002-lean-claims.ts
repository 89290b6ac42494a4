import type { Knex } from "knex";

/**
 * A claim is named by a UUID: half as wide as the text it was, in every row that is claimed and in its log.
 *
 * What an older version had claimed keeps its run and has no claimant any more: its run's retry activity tries it.
 */
export async function up(knex: Knex): Promise<void> {
  await knex.raw("alter table deliveries alter column claim_activity type uuid using null");
}

/** Migrations only go forward: a rollback of data-bearing tables is a restore from backup. */
export async function down(): Promise<void> {
  throw new Error("migrations only go forward; restore a backup instead");
}
