import type { Knex } from "knex";

/**
 * Endpoints with several event types. Only adds: each event type is a row of `webhooks`, which an older version beside this
 * one handles as a separate webhook. That version applies the rate limit to each of them, and changes one at a time.
 */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    create table endpoints (
      id uuid primary key default new_event_id(),
      created timestamptz not null default now(),
      rate_tokens float8 not null default 0,
      rate_at timestamptz not null default now(),
      served bigint
    ) with (fillfactor = 50);
    comment on table endpoints is 'Groups of webhooks, one for each event type, with the same URL, secrets and settings, which are stored in every webhook. An endpoint without a live webhook is not shown any more.';
    comment on column endpoints.rate_tokens is 'Deliveries that may be sent at rate_at, of all its webhooks together: those have the limit, and no tokens of their own.';
    comment on column endpoints.served is 'The webhook that got the last token of an uneven division. The next such division begins after it.';

    alter table webhooks add column endpoint_id uuid references endpoints;
    create index webhooks_endpoint on webhooks (endpoint_id) where endpoint_id is not null;
    comment on column webhooks.endpoint_id is 'Null for a webhook that shares its settings with no other.';
  `);
}

/** Migrations only go forward: a rollback of data-bearing tables is a restore from backup. */
export async function down(): Promise<void> {
  throw new Error("migrations only go forward; restore a backup instead");
}
