import type { Knex } from "knex";

/** The trace that an event belongs to. */
export async function up(db: Knex): Promise<void> {
  await db.raw(`
    alter table events add column traceparent text;
    comment on column events.traceparent is 'W3C Trace Context of the call that published the event; null without one';
  `);
}

/** Migrations only go forward. */
export async function down(): Promise<void> {
  throw new Error("migrations only go forward; restore a backup instead");
}
