import type { Knex } from "knex";

/**
 * Circuit breakers of webhooks. Only adds: a webhook that an open breaker holds back is `paused`, so that an older version
 * beside this one holds it back too. That version shows it as paused; if it resumes the webhook, the breaker is closed.
 */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    create table webhook_breakers (
      webhook_id bigint primary key,
      max_failures int not null,
      failing_s int not null,
      probe_s int not null,
      disable_s int not null,
      disable_on_gone boolean not null,
      resend boolean not null,
      state text not null default 'closed' check (state in ('closed', 'open', 'disabled')),
      since timestamptz not null default now(),
      reason text,
      failures int not null default 0,
      failing_since timestamptz,
      outage_since timestamptz,
      succeeded boolean not null default false,
      gone boolean not null default false,
      probes int not null default 0,
      next_probe timestamptz,
      resend_from timestamptz,
      resend_until timestamptz,
      resend_after uuid,
      due timestamptz
    ) with (fillfactor = 50);
    create index webhook_breakers_due on webhook_breakers (due) where due is not null;
    create index webhook_breakers_held on webhook_breakers (webhook_id) where state <> 'closed';
    comment on table webhook_breakers is 'Circuit breakers, of webhooks that have one. While one is open or disabled, its webhook is paused.';
    comment on column webhook_breakers.max_failures is 'Failed attempts in a row that open the breaker,';
    comment on column webhook_breakers.failing_s is 'if the first of them is as old as this, in seconds.';
    comment on column webhook_breakers.probe_s is 'Seconds before the first probe.';
    comment on column webhook_breakers.disable_s is 'Seconds without success, from the first failure, after which a failed probe disables the webhook.';
    comment on column webhook_breakers.resend is 'Whether deliveries that failed in an outage are sent again after it.';
    comment on column webhook_breakers.failures is 'Failed attempts since the last success.';
    comment on column webhook_breakers.failing_since is 'The first of them.';
    comment on column webhook_breakers.outage_since is 'When the failures began in which the breaker has opened; null after a success.';
    comment on column webhook_breakers.succeeded is 'An attempt has succeeded in an outage, and nothing was decided yet.';
    comment on column webhook_breakers.gone is 'The endpoint has answered 410, and nothing was decided yet.';
    comment on column webhook_breakers.probes is 'Failed probes since the breaker opened.';
    comment on column webhook_breakers.resend_until is 'Deliveries that failed from resend_from until then are being sent again, up to the id resend_after so far.';
    comment on column webhook_breakers.due is 'When to decide on it next; null for not before something happens.';

    alter table webhooks add column probe_attempts smallint;
    comment on column webhooks.probe_attempts is 'Attempts of test_delivery so far, if it waits for a retry: its next attempt is made although the webhook is paused.';
    comment on column webhooks.test_delivery is 'The delivery whose next attempt is made although the webhook is paused: of a test event, or the probe of a circuit breaker.';
  `);
}

/** Migrations only go forward: a rollback of data-bearing tables is a restore from backup. */
export async function down(): Promise<void> {
  throw new Error("migrations only go forward; restore a backup instead");
}
