import type { Knex } from "knex";

/**
 * Lets revoked keys and unused installed apps be removed: webhooks that were deleted, and events, keep their ids as
 * history. What a live webhook refers to is held by the statements that register, transfer and remove.
 *
 * The index finds the webhooks of an app, which is what its keys can reach.
 */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    alter table webhooks drop constraint webhooks_api_key_id_fkey, drop constraint webhooks_installed_app_id_fkey;
    comment on column webhooks.api_key_id is 'Of a deleted webhook, the key may have been removed.';
    comment on column webhooks.installed_app_id is 'Of a deleted webhook, the app may have been removed.';
    create index webhooks_app on webhooks (installed_app_id) where installed_app_id is not null;
    create index api_keys_app on api_keys (installed_app_id) where installed_app_id is not null;
  `);
}

/** Migrations only go forward: a rollback of data-bearing tables is a restore from backup. */
export async function down(): Promise<void> {
  throw new Error("migrations only go forward; restore a backup instead");
}
