import type { Knex } from "knex";

/**
 * Filters of webhooks, and the outcome of deliveries that they do not match. Only adds: workers of an older version beside
 * this one do not know filters, and send what a filter would keep back.
 */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    alter type outcome add value 'filtered';
    alter table webhooks add column filter text;
    comment on column webhooks.filter is 'An expression in CEL; events for which it is false are not sent. Null for none.';
    alter table rollup_minutes add column filtered int not null default 0;
    alter table rollup_hours add column filtered int not null default 0;
  `);
}

/** Migrations only go forward: a rollback of data-bearing tables is a restore from backup. */
export async function down(): Promise<void> {
  throw new Error("migrations only go forward; restore a backup instead");
}
