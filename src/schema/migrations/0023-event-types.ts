import type { Knex } from "knex";

/**
 * Event types that operators register. Only adds: processes of an older version beside this one do not know them, and while one runs,
 * none is registered (`requireFeature`).
 */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    create table catalogue_files (path text primary key, descriptor bytea not null);
    comment on table catalogue_files is 'The proto files of registered event types.';
    comment on column catalogue_files.descriptor is 'A google.protobuf.FileDescriptorProto with its source information.';

    create table event_types (
      process int primary key check (process between 1000 and 10000),
      name text not null,
      alias text,
      message text not null unique,
      deprecated timestamptz
    );
    create unique index event_types_name on event_types (lower(name));
    create unique index event_types_alias on event_types (lower(alias));
    comment on table event_types is 'Registered event types. Rows are never deleted, so that no number or name is used again.';
    comment on column event_types.process is 'The number, as in webhooks.process.';
    comment on column event_types.message is 'The full name of the message with the payload.';
    comment on column event_types.deprecated is 'The time since which no new webhooks are registered; null if they are.';

    create table event_type_registrations (
      revision bigint primary key,
      registered timestamptz not null default now()
    );
    comment on table event_type_registrations is 'A row for each change of the catalogue. Processes read the catalogue again when the last one has another revision.';

    create table event_type_changes (
      process int not null references event_types,
      revision bigint not null references event_type_registrations,
      kind text not null,
      changes text[] not null,
      primary key (process, revision)
    );
    comment on table event_type_changes is 'What each registration did to an event type: kind is added, changed, deprecated or offered_again.';
  `);
}

/** Migrations only go forward: a rollback of data-bearing tables is a restore from backup. */
export async function down(): Promise<void> {
  throw new Error("migrations only go forward; restore a backup instead");
}
