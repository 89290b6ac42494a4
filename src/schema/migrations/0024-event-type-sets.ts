import type { Knex } from "knex";

/** The set of each registration, so that a start with the same EVENT_TYPES need not check them again. Only adds a nullable column. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    alter table event_type_registrations add column set_sha256 bytea;
    comment on column event_type_registrations.set_sha256 is 'The SHA-256 of the last FileDescriptorSet of which registering it makes this revision, or changes nothing in it; null if there is none.';
  `);
}

/** Migrations only go forward: a rollback of data-bearing tables is a restore from backup. */
export async function down(): Promise<void> {
  throw new Error("migrations only go forward; restore a backup instead");
}
