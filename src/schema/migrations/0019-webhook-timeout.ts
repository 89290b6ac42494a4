import type { Knex } from "knex";

/** Timeouts of webhooks. Only adds: workers of an older version beside this one use DELIVERY_TIMEOUT. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    alter table webhooks add column timeout_ms int;
    comment on column webhooks.timeout_ms is 'The timeout of an attempt, if it is shorter than DELIVERY_TIMEOUT; null for none.';
  `);
}

/** Migrations only go forward: a rollback of data-bearing tables is a restore from backup. */
export async function down(): Promise<void> {
  throw new Error("migrations only go forward; restore a backup instead");
}
