import type { Knex } from "knex";

/** The runs of the last day are added up once a second while somebody watches. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw("create index runs_started on runs (started)");
}

/** Migrations only go forward: a rollback of data-bearing tables is a restore from backup. */
export async function down(): Promise<void> {
  throw new Error("migrations only go forward; restore a backup instead");
}
