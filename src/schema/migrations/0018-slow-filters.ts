import type { Knex } from "knex";

/** Filters whose evaluation takes too long. Only adds: workers of an older version beside this one evaluate a stopped filter. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    alter table webhooks add column filter_slow timestamptz, add column filter_stopped timestamptz;
    comment on column webhooks.filter_slow is 'The latest evaluation of the filter that took longer than FILTER_TIMEOUT, accurate to a minute; null for none.';
    comment on column webhooks.filter_stopped is 'When the filter was switched off, because several evaluations in succession took longer than FILTER_TIMEOUT; null if it is evaluated.';
  `);
}

/** Migrations only go forward: a rollback of data-bearing tables is a restore from backup. */
export async function down(): Promise<void> {
  throw new Error("migrations only go forward; restore a backup instead");
}
