import type { Knex } from "knex";

/** What holds up the deliveries of a process. An older version beside this one leaves it null. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    alter table workers add column bottleneck text;
    comment on column workers.bottleneck is 'What held up its deliveries for at least half of its last whole minute: thread, database, handshakes or limit; null if nothing did.';
  `);
}

/** Migrations only go forward: a rollback of data-bearing tables is a restore from backup. */
export async function down(): Promise<void> {
  throw new Error("migrations only go forward; restore a backup instead");
}
