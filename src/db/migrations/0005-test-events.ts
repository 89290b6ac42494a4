import type { Knex } from "knex";

/**
 * Marks events that were made up for a test of one webhook. A column of its own, since callers choose idempotency keys
 * as they like, and no prefix of them could tell.
 */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    alter table events add column test boolean not null default false;
    comment on column events.test is 'Made by SendTestEvent; its delivery carries X-Service-Webhook-Test.';
  `);
}

/** Migrations only go forward: a rollback of data-bearing tables is a restore from backup. */
export async function down(): Promise<void> {
  throw new Error("migrations only go forward; restore a backup instead");
}
