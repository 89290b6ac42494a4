import type { Knex } from "knex";

/**
 * Headers, credentials and key pairs of webhooks. Only adds: a worker of an earlier release sends requests without them.
 */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    alter table webhooks add column request_settings bytea,
      add column key_pairs bytea[] not null default '{}', add column key_pairs_expire timestamptz[] not null default '{}';
    comment on column webhooks.request_settings is 'Custom headers, credentials and TLS settings of its requests, encrypted like its signing secret; null for none.';
    comment on column webhooks.key_pairs is 'Private ed25519 keys that also sign its requests, newest first, each encrypted like its signing secret; empty for none.';
    comment on column webhooks.key_pairs_expire is 'The time at which each key pair stops signing; null for the newest.';
  `);
}

/** Migrations only go forward: a rollback of data-bearing tables is a restore from backup. */
export async function down(): Promise<void> {
  throw new Error("migrations only go forward; restore a backup instead");
}
