import type { Knex } from "knex";

/**
 * Changes of webhooks: earlier URLs, which the log still shows, and test deliveries to paused webhooks. Only adds, so that
 * an older version works beside it: that version shows the current URL, and sends test deliveries once resumed.
 */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    alter table webhooks add column test_delivery uuid;
    comment on column webhooks.test_delivery is 'The delivery of a test event whose first attempt is made although the webhook is paused.';

    create table webhook_old_urls (
      webhook_id bigint not null,
      until timestamptz not null,
      url text not null,
      primary key (webhook_id, until)
    );
    comment on table webhook_old_urls is 'URLs that webhooks had before they were changed, kept as long as deliveries.';
  `);
}

/** Migrations only go forward: a rollback of data-bearing tables is a restore from backup. */
export async function down(): Promise<void> {
  throw new Error("migrations only go forward; restore a backup instead");
}
