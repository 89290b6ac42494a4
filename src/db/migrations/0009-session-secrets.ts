import type { Knex } from "knex";

/**
 * A session names the secret that started it, so that it ends with that secret.
 *
 * Earlier sessions did not record it, and may be of a secret that works no more: their users sign in again.
 */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    delete from sessions;
    alter table sessions add column secret_sha256 bytea;
    comment on column sessions.secret_sha256 is 'The secret that it was started with: its end is that of the session.';
    create index sessions_key on sessions (api_key_id, started);
  `);
}

/** Migrations only go forward: a rollback of data-bearing tables is a restore from backup. */
export async function down(): Promise<void> {
  throw new Error("migrations only go forward; restore a backup instead");
}
