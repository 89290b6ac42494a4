import type { Knex } from "knex";

/** The processes of the service, and the features that the data requires of them. Only adds: releases before it have no row here. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    create table instances (
      id int generated always as identity primary key,
      name text not null,
      release text not null,
      role text not null,
      features text[] not null,
      lease_until timestamptz not null
    );
    comment on table instances is 'Processes that publish or deliver. A row without a valid lease is of a process that has ended.';
    comment on column instances.features is 'What it knows of the data that older releases do not.';
    create table required_features (name text primary key, since timestamptz not null default now());
    comment on table required_features is 'What a process must know: one that does not neither publishes nor delivers.';
  `);
}

/** Migrations only go forward: a rollback of data-bearing tables is a restore from backup. */
export async function down(): Promise<void> {
  throw new Error("migrations only go forward; restore a backup instead");
}
