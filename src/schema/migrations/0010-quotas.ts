import type { Knex } from "knex";

/**
 * Quotas of API keys. Only adds: processes of an older version beside this one ignore quotas.
 *
 * What a key has published in the current second is not logged, because a crash may forget it.
 */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    alter table api_keys add column webhook_quota int, add column events_per_second int;
    comment on column api_keys.webhook_quota is 'The maximum number of its live webhooks; null for no quota.';
    comment on column api_keys.events_per_second is 'The maximum number of events published with it per second; null for no quota.';
    create unlogged table event_quotas (
      api_key_id uuid primary key,
      tokens float8 not null,
      at timestamptz not null,
      rate int not null,
      requested int not null,
      granted int not null
    );
    comment on table event_quotas is 'A token bucket per API key with a quota of events per second.';
    comment on column event_quotas.tokens is 'The events that may be published at once, at most a second''s.';
    comment on column event_quotas.at is 'The time of tokens.';
    comment on column event_quotas.rate is 'Tokens per second.';
    comment on column event_quotas.requested is 'The events that the last request was for.';
    comment on column event_quotas.granted is 'The events of these that it was granted.';
  `);
}

/** Migrations only go forward: a rollback of data-bearing tables is a restore from backup. */
export async function down(): Promise<void> {
  throw new Error("migrations only go forward; restore a backup instead");
}
