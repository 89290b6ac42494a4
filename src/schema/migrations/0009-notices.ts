import type { Knex } from "knex";

/**
 * Notices of failed deliveries. Only adds: what an older version beside this one records or folds causes no notice.
 *
 * The column is null while no webhook subscribes to these notices. It is not compressed, because ids cannot be.
 */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    alter table rollup_deltas add column failed_ids uuid[];
    alter table rollup_deltas alter column failed_ids set storage external;
    comment on column rollup_deltas.failed_ids is 'Failed deliveries, of which notices are published when the row is folded; null while no webhook subscribes to them.';
  `);
}

/** Migrations only go forward: a rollback of data-bearing tables is a restore from backup. */
export async function down(): Promise<void> {
  throw new Error("migrations only go forward; restore a backup instead");
}
