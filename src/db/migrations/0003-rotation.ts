import type { Knex } from "knex";

/**
 * Secrets that were rotated away and still count for a while, of keys and of webhooks, and when a key was last used.
 *
 * A webhook's are in its row: the claim reads that row once, and rotating is one update.
 */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    alter table api_keys add column last_used timestamptz;
    comment on column api_keys.last_used is 'To about a minute.';

    create table api_key_old_secrets (
      secret_sha256 bytea primary key,
      api_key_id uuid not null references api_keys,
      expires timestamptz not null
    );
    comment on table api_key_old_secrets is 'Secrets from before a rotation that are taken until they expire.';
    create index api_key_old_secrets_key on api_key_old_secrets (api_key_id);

    alter table webhooks
      add column old_secrets bytea[] not null default '{}',
      add column old_secrets_expire timestamptz[] not null default '{}',
      add constraint webhooks_old_secrets check (cardinality(old_secrets) = cardinality(old_secrets_expire));
    comment on column webhooks.old_secrets is 'Sign beside secret until they expire, newest first; sealed as it is.';
  `);
}

/** Migrations only go forward: a rollback of data-bearing tables is a restore from backup. */
export async function down(): Promise<void> {
  throw new Error("migrations only go forward; restore a backup instead");
}
