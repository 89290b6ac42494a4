import type { Knex } from "knex";

/** Test deliveries to paused webhooks. Only adds, so that an older version works beside it and sends them once resumed. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    alter table webhooks add column test_delivery uuid;
    comment on column webhooks.test_delivery is 'The delivery of a test event whose first attempt is made although the webhook is paused.';
  `);
}

/** Migrations only go forward: a rollback of data-bearing tables is a restore from backup. */
export async function down(): Promise<void> {
  throw new Error("migrations only go forward; restore a backup instead");
}
