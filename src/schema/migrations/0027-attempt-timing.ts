import type { Knex } from "knex";

/** Where the time of failed attempts went. Only adds: workers of an older version beside this one store none. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    alter table attempts add column timing text;
    alter table deliveries add column timing text;
    comment on column attempts.timing is 'The durations in milliseconds of the DNS lookup, the connection, TLS, up to the response headers, and the body, up to the part in which the attempt ended, separated by spaces. Of failed attempts that opened a connection.';
    comment on column deliveries.timing is 'As in attempts.';
  `);
}

/** Migrations only go forward: a rollback of data-bearing tables is a restore from backup. */
export async function down(): Promise<void> {
  throw new Error("migrations only go forward; restore a backup instead");
}
