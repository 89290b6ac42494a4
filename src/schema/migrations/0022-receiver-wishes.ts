import type { Knex } from "knex";

/** What receivers ask for. Only adds: workers of an older version beside this one honour Retry-After for each delivery alone. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    alter table webhooks add column held_until timestamptz, add column receiver_rate float8, add column paced_from timestamptz;
    comment on column webhooks.held_until is 'The end of the last time for which the receiver asked for no requests; null if it never did. The same for all webhooks of an endpoint, as the next two columns.';
    comment on column webhooks.receiver_rate is 'The deliveries per second that the receiver took before its last refusal, or that it has stated; null if not known.';
    comment on column webhooks.paced_from is 'The time from which the pace of deliveries grows from half of receiver_rate: the end of the hold of the last refusal. Null for no pace.';
  `);
}

/** Migrations only go forward: a rollback of data-bearing tables is a restore from backup. */
export async function down(): Promise<void> {
  throw new Error("migrations only go forward; restore a backup instead");
}
