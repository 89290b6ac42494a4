import type { Knex } from "knex";

/**
 * When a delivery was sent again or replayed. Null in other rows, where the column takes no space: the header of a row has
 * room for the null bits of eight columns. An older version beside this one leaves it null.
 */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    alter table queue add column queued timestamptz;
    comment on column queue.queued is 'When a resend or a replay queued it; null if publishing its event did: the time in its id.';
  `);
}

/** Migrations only go forward: a rollback of data-bearing tables is a restore from backup. */
export async function down(): Promise<void> {
  throw new Error("migrations only go forward; restore a backup instead");
}
