import type { Knex } from "knex";

/**
 * Health of webhooks. Only adds, so that version 0.2.0 works beside it: what that version folds has no count of failed
 * attempts and changes no health.
 */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    alter table rollup_minutes add column failed_attempts int;
    alter table rollup_hours add column failed_attempts int;
    comment on column rollup_minutes.failed_attempts is 'Attempts that failed, retried or not; null where version 0.2.0 counted.';
    comment on column rollup_hours.failed_attempts is 'Attempts that failed, retried or not; null where version 0.2.0 counted.';

    create table webhook_health (
      webhook_id bigint primary key,
      health text not null default 'healthy' check (health in ('healthy', 'degraded', 'failing')),
      since timestamptz not null default now(),
      first_failure timestamptz,
      last_failure timestamptz not null,
      last_success timestamptz,
      last_error text,
      error_read timestamptz
    ) with (fillfactor = 50);
    comment on table webhook_health is 'Webhooks of which attempts failed lately. A webhook without a row is healthy.';
    comment on column webhook_health.since is 'When the webhook became degraded; while failing, the first failed attempt since the last success.';
    comment on column webhook_health.first_failure is 'The first failed attempt since the last success; null when the latest attempts succeeded.';
    comment on column webhook_health.last_success is 'From before the first failure accurate to a minute; null for none within five minutes before it.';
    comment on column webhook_health.error_read is 'When last_error was read from the attempts.';
  `);
}

/** Migrations only go forward: a rollback of data-bearing tables is a restore from backup. */
export async function down(): Promise<void> {
  throw new Error("migrations only go forward; restore a backup instead");
}
