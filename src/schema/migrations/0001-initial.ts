import type { Knex } from "knex";

/**
 * The first schema.
 *
 * A delivery is a row of exactly one of three tables: `queue` until its first attempt has a result, `retries` while it
 * waits for another attempt, and `deliveries`, the log, once it has ended. `events`, `deliveries` and `attempts` are
 * partitioned by the time in their UUIDv7 ids: retention drops partitions instead of deleting rows.
 *
 * Tables of deliveries have no foreign keys: every publish would lock the same webhook row for sharing. Times are
 * timestamptz.
 */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(IDS);
  await knex.raw(ACCESS);
  await knex.raw(WEBHOOKS);
  await knex.raw(EVENTS);
  await knex.raw(QUEUE);
  await knex.raw(LOG);
  await knex.raw(ROLLUPS);
  await knex.raw(VIEWS);
}

const IDS = `
  -- UUIDv7 by whichever PostgreSQL: 18 has its own function, older ones build it from a random UUID.
  do $do$ begin
    if current_setting('server_version_num')::int >= 180000 then
      create function new_event_id() returns uuid language sql volatile as 'select uuidv7()';
    else
      create function new_event_id() returns uuid language sql volatile as $$
        select encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid()) placing
          substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3) from 1 for 6),
          52, 1), 53, 1), 'hex')::uuid $$;
    end if;
  end $do$;

  -- The first eight bytes of a delivery's id are those of its event's: both leave with the same partition, and the
  -- deliveries of an event are a range of ids.
  create function new_delivery_id(event_id uuid) returns uuid language sql volatile as $$
    select encode(substring(uuid_send(event_id) from 1 for 8) || substring(uuid_send(gen_random_uuid()) from 9), 'hex')::uuid
  $$;

  create function time_of_id(id uuid) returns timestamptz language sql immutable as $$
    select to_timestamp(('x' || encode(substring(uuid_send(id) from 1 for 6), 'hex'))::bit(48)::bigint / 1000.0)
  $$;
`;

const ACCESS = `
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
    revoked timestamptz,
    last_used timestamptz
  );
  comment on column api_keys.permissions is 'Numbers of the proto enum Permission.';
  comment on column api_keys.allowed_processes is 'Numbers of WebhookProcess; every type when empty.';
  comment on column api_keys.last_used is 'Accurate to about a minute.';
  create index api_keys_app on api_keys (installed_app_id) where installed_app_id is not null;

  create table api_key_old_secrets (
    secret_sha256 bytea primary key,
    api_key_id uuid not null references api_keys,
    expires timestamptz not null
  );
  comment on table api_key_old_secrets is 'Secrets from before a rotation, valid until they expire.';
  create index api_key_old_secrets_key on api_key_old_secrets (api_key_id);

  create table sessions (
    token_sha256 bytea primary key,
    api_key_id uuid not null references api_keys,
    key_secret_sha256 bytea not null,
    secret_sha256 bytea,
    started timestamptz not null default now(),
    expires timestamptz not null
  );
  comment on table sessions is 'Sign-ins to the settings page.';
  comment on column sessions.key_secret_sha256 is 'Hash of the key''s secret at sign-in: another one ends the session.';
  comment on column sessions.secret_sha256 is 'Hash of the secret that signed in: its end is that of the session.';
  create index sessions_key on sessions (api_key_id, started);
`;

const WEBHOOKS = `
  create table processes (
    process int primary key,
    revision bigint not null,
    live int not null
  );
  comment on table processes is 'Per event type: a revision that every create, pause, resume and delete of a webhook raises, and the live webhooks.';

  create table webhooks (
    id bigint generated always as identity primary key,
    name text,
    process int not null,
    url text not null,
    target_url text not null,
    api_key_id uuid not null,
    installed_app_id uuid,
    secret bytea not null,
    old_secrets bytea[] not null default '{}',
    old_secrets_expire timestamptz[] not null default '{}',
    created timestamptz not null default now(),
    modified timestamptz not null default now(),
    paused timestamptz,
    rate_limit int,
    rate_tokens float8 not null default 0,
    rate_at timestamptz not null default now(),
    deleted timestamptz,
    emptied timestamptz,
    revision bigint not null default 1,
    created_revision bigint not null default 0,
    deleted_revision bigint,
    constraint webhooks_old_secrets check (cardinality(old_secrets) = cardinality(old_secrets_expire))
  );
  comment on column webhooks.url is 'As first given.';
  comment on column webhooks.target_url is 'As requested: WHATWG-normalised, final dot of the host stripped.';
  comment on column webhooks.api_key_id is 'The key of a deleted webhook may have been removed.';
  comment on column webhooks.installed_app_id is 'The app of a deleted webhook may have been removed.';
  comment on column webhooks.secret is 'Signing secret, AES-256-GCM.';
  comment on column webhooks.old_secrets is 'Sign beside secret until they expire, newest first; sealed like it.';
  comment on column webhooks.rate_limit is 'Maximum deliveries per second; the tokens of rate_at grow by it, up to it.';
  comment on column webhooks.emptied is 'When no open delivery of a deleted webhook was left and none can appear any more.';
  comment on column webhooks.created_revision is 'Revision of the event type that includes the webhook first.';
  comment on column webhooks.deleted_revision is 'Revision of the event type that does not include it any more.';
  create unique index webhooks_live on webhooks (process, target_url) where deleted is null;
  create index webhooks_process on webhooks (process, id);
  create index webhooks_key on webhooks (api_key_id) where deleted is null;
  create index webhooks_app on webhooks (installed_app_id) where installed_app_id is not null;
  create index webhooks_emptying on webhooks (id) where deleted is not null and emptied is null;
`;

const EVENTS = `
  create table events (
    id uuid primary key,
    api_key_id uuid not null,
    idempotency_key text not null,
    process int not null,
    user_id text not null,
    occurred timestamptz not null,
    recipients int not null default 0,
    test boolean not null default false,
    payload text
  ) partition by range (id);
  create index events_user on events (user_id, id);
  comment on column events.recipients is 'Webhooks that get a delivery, fixed when the event was published.';
  comment on column events.test is 'Made by SendTestEvent; its delivery carries X-Service-Webhook-Test.';
  comment on column events.payload is 'The body receivers get. Text: json loses int64 on read, jsonb the key order. Null once erased.';

  create table idempotency_keys (
    api_key_id uuid not null,
    idempotency_key text not null,
    event_id uuid not null,
    request_sha256 bytea not null,
    primary key (api_key_id, idempotency_key)
  );
  comment on table idempotency_keys is 'Lives as long as its event. Not partitioned, so that a key is unique over all days.';

  create table fan_out (
    event_id uuid primary key,
    process int not null,
    revision bigint not null,
    after_webhook_id bigint not null default 0,
    remaining int not null
  ) with (fillfactor = 50);
  comment on table fan_out is 'Events with many recipients, of which some have no row in queue yet.';
`;

/**
 * A claim updates every row of a page at once, and changes no indexed column: with room for a second version of each row
 * on its page, it writes no index.
 */
const HOT = `fillfactor = 45, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.2`;

const QUEUE = `
  create table workers (
    id int generated always as identity primary key,
    name text not null,
    task_queue text not null,
    started timestamptz not null default now(),
    lease_until timestamptz not null
  ) with (fillfactor = 50);
  comment on column workers.task_queue is 'Where the process takes pumps in Temporal.';
  comment on table workers is 'Processes that deliver. Deleting a row whose lease has expired frees its claims.';

  create table runs (
    id int generated always as identity primary key,
    workflow_id text not null,
    first_run_id text not null,
    started timestamptz not null default now(),
    lease_until timestamptz not null,
    closed timestamptz,
    sent int not null default 0,
    delivered int not null default 0,
    failed int not null default 0,
    unique (workflow_id, first_run_id)
  ) with (fillfactor = 70);
  comment on table runs is 'One row per dispatch run; once closed it gets no more retries.';
  create index runs_open on runs (lease_until) where closed is null;
  create index runs_started on runs (started);

  create table run_groups (
    run_id int not null references runs on delete cascade,
    webhook_id bigint not null,
    group_number int not null,
    primary key (run_id, webhook_id)
  );
  comment on table run_groups is 'The retry group of each failing webhook of a run.';
  create index run_groups_members on run_groups (run_id, group_number);

  create table queue (
    id uuid primary key,
    event_id uuid not null,
    webhook_id bigint not null,
    run_id int,
    claimed_by int,
    claims smallint not null default 0,
    attempts smallint not null default 0
  ) with (${HOT});
  comment on table queue is 'Deliveries whose round has no recorded attempt yet.';
  comment on column queue.run_id is 'The run that claimed it last.';
  comment on column queue.claimed_by is 'The worker that sends it; free when null or when that worker has no row.';
  comment on column queue.claims is 'Claims without a recorded result.';
  comment on column queue.attempts is 'Recorded attempts of earlier rounds.';
  create index queue_webhook on queue (webhook_id, id);

  create table retries (
    id uuid primary key,
    event_id uuid not null,
    webhook_id bigint not null,
    run_id int,
    claimed_by int,
    claims smallint not null default 0,
    attempts smallint not null,
    round_start smallint not null,
    due timestamptz not null
  ) with (${HOT});
  comment on table retries is 'Deliveries that wait for another attempt, or are having one.';
  comment on column retries.run_id is 'The run that retries it; null until a run adopts it.';
  comment on column retries.attempts is 'Recorded attempts over all rounds.';
  comment on column retries.round_start is 'Recorded attempts when the current round began.';
  create index retries_run on retries (run_id, webhook_id);
  create index retries_webhook on retries (webhook_id, id);
`;

const LOG = `
  create type outcome as enum ('delivered', 'failed', 'cancelled');

  create table deliveries (
    id uuid primary key,
    event_id uuid not null,
    webhook_id bigint not null,
    run_id int,
    outcome outcome not null,
    attempts smallint not null,
    round_start smallint not null,
    status smallint,
    duration_ms int,
    started timestamptz,
    finished timestamptz not null,
    reason text,
    error text,
    response_start text
  ) partition by range (id);
  comment on table deliveries is 'The log: deliveries that have ended, each with the attempt that ended it.';
  comment on column deliveries.attempts is 'Recorded attempts over all rounds; the number of the ending one, if there is one.';
  comment on column deliveries.started is 'Start of the ending attempt; null when the delivery ended without one.';
  create index deliveries_webhook on deliveries (webhook_id, id);
  create index deliveries_failed on deliveries (id) where outcome = 'failed';
  create index deliveries_failed_webhook on deliveries (webhook_id, id) where outcome = 'failed';
  create index deliveries_cancelled on deliveries (id) where outcome = 'cancelled';
  create index deliveries_cancelled_webhook on deliveries (webhook_id, id) where outcome = 'cancelled';

  create table attempts (
    delivery_id uuid not null,
    number smallint not null,
    started timestamptz not null,
    duration_ms int not null,
    status smallint,
    error text,
    response_start text,
    primary key (delivery_id, number)
  ) partition by range (delivery_id);
  comment on table attempts is 'Attempts that did not end their delivery. The one that did is in the row of the log.';
`;

const ROLLUP = `
    webhook_id bigint not null,
    start timestamptz not null,
    attempts int not null,
    delivered int not null,
    failed int not null,
    cancelled int not null,
    total_ms bigint not null,
    longest_ms int not null,
    latency int[] not null,
    primary key (webhook_id, start)
  ) with (fillfactor = 80)`;

const ROLLUPS = `
  create table rollup_deltas (
    id bigint generated always as identity primary key,
    minute timestamptz not null,
    webhook_ids bigint[] not null,
    changes smallint[] not null,
    durations_ms int[] not null
  );
  -- Never compressed or moved to another table: a batch fits a page, and compressing costs more than it saves.
  alter table rollup_deltas alter column webhook_ids set storage plain, alter column changes set storage plain,
    alter column durations_ms set storage plain;
  comment on table rollup_deltas is 'What statements that recorded results changed; folded into the rollups in the background.';

  create table rollup_minutes (${ROLLUP};
  comment on table rollup_minutes is 'Counts per webhook and minute; webhook 0 is the sum of all.';
  comment on column rollup_minutes.latency is 'Attempts by duration, see LATENCY_BOUNDS_MS.';
  create index rollup_minutes_start on rollup_minutes using brin (start) with (pages_per_range = 16);

  create table rollup_hours (${ROLLUP};
  comment on table rollup_hours is 'Counts per webhook and hour; webhook 0 is the sum of all.';
  create index rollup_hours_start on rollup_hours using brin (start) with (pages_per_range = 16);
`;

const VIEWS = `
  create view all_deliveries as
    select id, event_id, webhook_id, case when exists (select from workers w where w.id = claimed_by)
        then 'delivering' else 'pending' end as state, attempts, attempts as round_start, claims, claimed_by, run_id,
        null::timestamptz as retry_at, null::timestamptz as finished, null::text as reason, time_of_id(id) as created
      from queue
    union all select id, event_id, webhook_id, 'retrying', attempts, round_start, claims, claimed_by, run_id, due, null,
        null, time_of_id(id)
      from retries
    union all select id, event_id, webhook_id, outcome::text, attempts, round_start, 0, null, run_id, null, finished,
        reason, time_of_id(id)
      from deliveries;
  comment on view all_deliveries is 'Every delivery, whichever table it is in. For people and tests: it has no index of its own.';

  create view all_attempts as
    select delivery_id, number, started, duration_ms, status, error, response_start from attempts
    union all select id, attempts, started, duration_ms, status, error, response_start from deliveries
      where started is not null;
  comment on view all_attempts is 'Every recorded attempt, those that ended their delivery included.';
`;

/** Migrations only go forward: a rollback of data-bearing tables is a restore from backup. */
export async function down(): Promise<void> {
  throw new Error("migrations only go forward; restore a backup instead");
}
