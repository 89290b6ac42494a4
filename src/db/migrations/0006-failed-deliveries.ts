import type { Knex } from "knex";

/**
 * What went wrong is looked for among many that went right, newest first, of all webhooks and of one.
 *
 * Partial, so that a delivery that arrives costs nothing more: only rows at rest are in them.
 */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    create index deliveries_failed on deliveries (id) where state = 'failed';
    create index deliveries_failed_webhook on deliveries (webhook_id, id) where state = 'failed';
    create index deliveries_cancelled on deliveries (id) where state = 'cancelled';
  `);
}

/** Migrations only go forward: a rollback of data-bearing tables is a restore from backup. */
export async function down(): Promise<void> {
  throw new Error("migrations only go forward; restore a backup instead");
}
