import type { Knex } from "knex";

/**
 * Retry delays, rate periods and second signatures of webhooks. Only adds: workers of an older version beside this one use the service's
 * retry delays, deliver the limit in each second, and send the standard signature alone.
 */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    alter table webhooks
      add column first_retry_seconds int,
      add column second_retry_seconds int,
      add column third_retry_seconds int,
      add column rate_period_seconds int,
      add column signature_form text,
      add column signature_header text,
      add column signature_prefix text;
    comment on column webhooks.first_retry_seconds is 'The delay of the first retry; null for that of RETRY_INITIAL_DELAY.';
    comment on column webhooks.second_retry_seconds is 'As first_retry_seconds, of the second retry.';
    comment on column webhooks.third_retry_seconds is 'As first_retry_seconds, of the third retry.';
    comment on column webhooks.rate_period_seconds is 'The period of rate_limit; null for a second.';
    comment on column webhooks.signature_form is 'A second signature: svix, stripe or hex; null for none.';
    comment on column webhooks.signature_header is 'The header of the second signature; null for that of its form.';
    comment on column webhooks.signature_prefix is 'The text before a second signature of the form hex; null for none.';
  `);
}

/** Migrations only go forward: a rollback of data-bearing tables is a restore from backup. */
export async function down(): Promise<void> {
  throw new Error("migrations only go forward; restore a backup instead");
}
