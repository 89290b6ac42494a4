import type { Knex } from "knex";

/**
 * The first schema.
 *
 * Deliveries and attempts have no foreign keys on purpose: every publish would lock the same webhook row for
 * sharing, and retention deletes them together anyway. Times are timestamptz; ids of events and deliveries UUIDv7.
 */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    -- UUIDv7 by whichever PostgreSQL: 18 has its own function, older ones build it from a random UUID.
    do $do$ begin
      if current_setting('server_version_num')::int >= 180000 then
        create function new_delivery_id() returns uuid language sql volatile as 'select uuidv7()';
      else
        create function new_delivery_id() returns uuid language sql volatile as $$
          select encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid()) placing
            substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3) from 1 for 6),
            52, 1), 53, 1), 'hex')::uuid $$;
      end if;
    end $do$;

    create table settings (
      name text primary key,
      value text not null
    );
    comment on table settings is 'Facts about this instance, such as a check value of SECRET_KEY.';

    create table installed_apps (
      id uuid primary key,
      name text not null,
      created timestamptz not null default now()
    );

    create table api_keys (
      id uuid primary key,
      name text not null,
      prefix text not null,
      secret_sha256 bytea not null unique,
      permissions int[] not null,
      allowed_processes int[] not null default '{}',
      installed_app_id uuid references installed_apps,
      created timestamptz not null default now(),
      revoked timestamptz
    );
    comment on column api_keys.permissions is 'Numbers of the proto enum Permission.';
    comment on column api_keys.allowed_processes is 'Numbers of WebhookProcess; every type when empty.';

    create table webhooks (
      id bigint generated always as identity primary key,
      process int not null,
      url text not null,
      target_url text not null,
      api_key_id uuid not null references api_keys,
      installed_app_id uuid references installed_apps,
      secret bytea not null,
      created timestamptz not null default now(),
      modified timestamptz not null default now(),
      paused timestamptz,
      rate_limit int,
      rate_tokens float8 not null default 0,
      rate_at timestamptz not null default now(),
      deleted timestamptz
    );
    comment on column webhooks.url is 'As first given.';
    comment on column webhooks.target_url is 'As requested: WHATWG-normalised, final dot of the host stripped.';
    comment on column webhooks.rate_limit is 'Most deliveries a second; the tokens of rate_at grow by it, up to it.';
    comment on column webhooks.secret is 'Signing secret, AES-256-GCM.';
    create unique index webhooks_live on webhooks (process, target_url) where deleted is null;
    create index webhooks_key on webhooks (api_key_id) where deleted is null;

    create table events (
      id uuid primary key,
      api_key_id uuid not null,
      idempotency_key text not null,
      request_sha256 bytea not null,
      process int not null,
      user_id text not null,
      occurred timestamptz not null,
      created timestamptz not null default now(),
      deliveries int not null default 0,
      payload text not null,
      unique (api_key_id, idempotency_key)
    );
    comment on column events.payload is 'The body receivers get. Text: json loses int64 on read, jsonb the key order.';

    create type delivery_state as enum ('pending', 'delivering', 'retrying', 'delivered', 'failed', 'cancelled');

    create table runs (
      id bigint generated always as identity primary key,
      workflow_id text not null,
      first_run_id text not null,
      started timestamptz not null default now(),
      lease_until timestamptz not null,
      closed timestamptz,
      sent int not null default 0,
      delivered int not null default 0,
      failed int not null default 0,
      unique (workflow_id, first_run_id)
    );
    comment on table runs is 'One row a dispatch run; when its lease runs out, its open deliveries are pending again.';
    create index runs_open on runs (lease_until) where closed is null;

    create table run_groups (
      run_id bigint not null references runs on delete cascade,
      webhook_id bigint not null,
      group_number int not null,
      primary key (run_id, webhook_id)
    );
    comment on table run_groups is 'Which retry group of the run a failing webhook belongs to.';

    create table deliveries (
      id uuid primary key default new_delivery_id(),
      event_id uuid not null,
      webhook_id bigint not null,
      state delivery_state not null default 'pending',
      attempts smallint not null default 0,
      round_start smallint not null default 0,
      claims smallint not null default 0,
      claim_attempt int,
      run_id bigint,
      claim_activity text,
      retry_at timestamptz,
      finished timestamptz,
      reason text,
      created timestamptz not null default now()
    ) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05);
    comment on column deliveries.attempts is 'Recorded attempts over all rounds.';
    comment on column deliveries.round_start is 'Recorded attempts when the current round began.';
    comment on column deliveries.claims is 'Claims since the last recorded result.';
    comment on column deliveries.claim_activity is 'With run_id and claim_attempt: who may record the next result.';
    -- By time, not by id: an order that the primary key gives too tempts the planner to read the whole table by it.
    create index deliveries_pending on deliveries (webhook_id, created) where state = 'pending';
    create index deliveries_open on deliveries (run_id, webhook_id) where state in ('delivering', 'retrying');
    create index deliveries_event on deliveries (event_id);
    create index deliveries_webhook on deliveries (webhook_id, id);

    create table attempts (
      delivery_id uuid not null,
      number smallint not null,
      started timestamptz not null,
      duration_ms int not null,
      status smallint,
      error text,
      response_start text,
      primary key (delivery_id, number)
    );
  `);
}

/** Migrations only go forward: a rollback of data-bearing tables is a restore from backup. */
export async function down(): Promise<void> {
  throw new Error("migrations only go forward; restore a backup instead");
}
