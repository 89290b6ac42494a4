import type { Knex } from "knex";

/**
 * A claim finds the due retries of a webhook in a run by one probe, whatever number is not due. The new index begins with the columns
 * of the old one, whose statements of earlier versions it serves. Recording waits while it is built, some seconds per million
 * retries.
 */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    create index retries_due on retries (run_id, webhook_id, due);
    drop index retries_run;
  `);
}

/** Migrations only go forward: a rollback of data-bearing tables is a restore from backup. */
export async function down(): Promise<void> {
  throw new Error("migrations only go forward; restore a backup instead");
}
