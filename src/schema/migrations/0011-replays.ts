import type { Knex } from "knex";

/**
 * Replays: jobs that queue deliveries again, or for a webhook that missed them. Only adds: workers of an older version
 * beside this one do not run replays.
 */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    create table replays (
      id uuid primary key default new_event_id(),
      api_key_id uuid not null,
      idempotency_key text,
      installed_app_id uuid,
      processes int[] not null,
      kind text not null check (kind in ('resend', 'backfill')),
      filter jsonb not null,
      from_id uuid not null,
      to_id uuid not null,
      created timestamptz not null default now(),
      paused timestamptz,
      ended timestamptz,
      cancelled boolean not null default false,
      listed_to bigint,
      active timestamptz,
      queued bigint not null default 0,
      skipped bigint not null default 0,
      webhooks int not null default 0,
      workflow_id text,
      run_id text
    ) with (fillfactor = 70);
    create unique index replays_key on replays (api_key_id, idempotency_key) where idempotency_key is not null;
    create index replays_open on replays (id) where ended is null;
    comment on column replays.installed_app_id is 'Of the key that started it: what that key could access is replayed.';
    comment on column replays.processes is 'The event types of that key; every type when empty.';
    comment on column replays.filter is 'What was requested.';
    comment on column replays.from_id is 'The first id that a delivery, or an event of a backfill, may have.';
    comment on column replays.to_id is 'The first id after them.';
    comment on column replays.listed_to is 'Webhooks up to this id have their row in replay_webhooks; null once all have.';
    comment on column replays.active is 'When an activity last worked on it; null if it is to be started.';
    comment on column replays.queued is 'The sum of its rows in replay_webhooks, which are deleted when it has ended. So are skipped and webhooks.';

    create table replay_webhooks (
      replay_id uuid not null references replays on delete cascade,
      webhook_id bigint not null,
      step int not null,
      before_step uuid not null,
      after_step uuid not null,
      stepped timestamptz not null default now(),
      busy_at timestamptz,
      due timestamptz not null default now(),
      waiting boolean not null default false,
      queued int not null default 0,
      skipped int not null default 0,
      ended timestamptz,
      primary key (replay_id, webhook_id)
    ) with (fillfactor = 70);
    create index replay_webhooks_due on replay_webhooks (replay_id, due) where ended is null;
    create index replay_webhooks_moving on replay_webhooks (replay_id) where ended is null and not waiting;
    comment on table replay_webhooks is 'The part of a replay that concerns one webhook; webhook 0 stands for all together.';
    comment on column replay_webhooks.step is 'The number of deliveries that the next step queues.';
    comment on column replay_webhooks.before_step is 'The last step examined ids after this one,';
    comment on column replay_webhooks.after_step is 'up to this one.';
    comment on column replay_webhooks.busy_at is 'When a look last found that some of the last step were not attempted; null if none did.';
    comment on column replay_webhooks.due is 'When to look whether the next step may begin.';
    comment on column replay_webhooks.waiting is 'Whether the webhook was paused at the last look.';
  `);
}

/** Migrations only go forward: a rollback of data-bearing tables is a restore from backup. */
export async function down(): Promise<void> {
  throw new Error("migrations only go forward; restore a backup instead");
}
