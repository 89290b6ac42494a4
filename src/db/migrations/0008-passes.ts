import type { Knex } from "knex";

/**
 * Who holds a retry group: the pass that began last. One that it replaced, by a worker that was taken for dead and is
 * not, would take from its successor what that has just taken from it, and so on.
 */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    alter table run_groups add column pass_activity uuid, add column pass_attempt int;
    create index run_groups_members on run_groups (run_id, group_number);
    comment on column run_groups.pass_activity is 'The activity whose pass claims in the group; no other may.';
  `);
}

/** Migrations only go forward: a rollback of data-bearing tables is a restore from backup. */
export async function down(): Promise<void> {
  throw new Error("migrations only go forward; restore a backup instead");
}
