import type { Knex } from "knex";

/** Sessions of the settings page. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    create table sessions (
      token_sha256 bytea primary key,
      api_key_id uuid not null references api_keys,
      key_secret_sha256 bytea not null,
      started timestamptz not null default now(),
      expires timestamptz not null
    );
    comment on table sessions is 'Who is signed in to the settings page.';
    comment on column sessions.key_secret_sha256 is 'That of the key when it signed in: another one ends the session.';
  `);
}

/** Migrations only go forward: a rollback of data-bearing tables is a restore from backup. */
export async function down(): Promise<void> {
  throw new Error("migrations only go forward; restore a backup instead");
}
