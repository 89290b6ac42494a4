import type { Knex } from "knex";

/** An index can only be built concurrently outside of a transaction. */
export const config = { transaction: false };

const INDEXES = [
  "deliveries_failed on deliveries (id) where state = 'failed'",
  "deliveries_failed_webhook on deliveries (webhook_id, id) where state = 'failed'",
  "deliveries_cancelled on deliveries (id) where state = 'cancelled'",
];

/**
 * What went wrong is looked for among many that went right, newest first, of all webhooks and of one.
 *
 * Partial, so that a delivery that arrives costs nothing more: only rows at rest are in them. Built concurrently: the
 * table is large, and publishing and dispatch go on meanwhile. A build that was cut short leaves an index that is not
 * used; it is built anew.
 */
export async function up(knex: Knex): Promise<void> {
  for (const index of INDEXES) {
    await knex.raw(`drop index concurrently if exists ${index.split(" ")[0]}`);
    await knex.raw(`create index concurrently ${index}`);
  }
}

/** Migrations only go forward: a rollback of data-bearing tables is a restore from backup. */
export async function down(): Promise<void> {
  throw new Error("migrations only go forward; restore a backup instead");
}
