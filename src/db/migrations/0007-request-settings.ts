import type { Knex } from "knex";

/** Headers and credentials of webhooks. Only adds: a worker of an earlier release sends requests without them. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    alter table webhooks add column request_settings bytea;
    comment on column webhooks.request_settings is 'Custom headers and credentials of its requests, encrypted like its signing secret; null for none.';
  `);
}

/** Migrations only go forward: a rollback of data-bearing tables is a restore from backup. */
export async function down(): Promise<void> {
  throw new Error("migrations only go forward; restore a backup instead");
}
