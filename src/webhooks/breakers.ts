import { count, type Db, run } from "../lib/pg/index.ts";

/** The state of a breaker. It lets through everything; single probes; nothing until a user resumes the webhook. */
export type BreakerState = "closed" | "open" | "disabled";

/** The settings of a webhook's circuit breaker. Times are in seconds. */
export interface BreakerSettings {
  /** Failed attempts in a row after which it opens. */
  failures: number;
  /** The minimum age of the first of them. */
  failingSeconds: number;
  /** The time before the first probe. Doubles with each failed probe, up to `MAX_PROBE_INTERVAL_S`. */
  probeSeconds: number;
  /** The age of the first failure from which a failed probe disables the webhook. */
  disableSeconds: number;
  /** Whether the response 410 Gone disables the webhook. */
  disableOnGone: boolean;
  /** Whether deliveries that failed in an outage are sent again after it. */
  resendFailed: boolean;
}

/** A webhook's circuit breaker. Times are in ISO 8601. */
export interface Breaker {
  settings: BreakerSettings;
  state: BreakerState;
  since: string;
  /** Null while it is closed. */
  reason: string | null;
  /** The time of the next probe, while the breaker is open. In the past if a probe is in flight or nothing waits. */
  nextProbe: string | null;
  /** Failed attempts since the last success. */
  failedAttempts: number;
}

/**
 * The columns `paused` and `breaker` of a webhook. A webhook that its breaker holds back is not paused for users.
 *
 * An earlier version that runs beside this one may have resumed the webhook: its breaker is closed then.
 *
 * @param table the name of `webhooks` in the query
 */
export const breakerColumns = (table: string) => `
  case when not exists (select from webhook_breakers k where k.webhook_id = ${table}.id and k.state <> 'closed')
    then ${table}.paused end as paused,
  (select json_build_object(
      'settings', json_build_object('failures', k.max_failures, 'failingSeconds', k.failing_s, 'probeSeconds', k.probe_s,
        'disableSeconds', k.disable_s, 'disableOnGone', k.disable_on_gone, 'resendFailed', k.resend),
      'state', case when ${table}.paused is null then 'closed' else k.state end, 'since', k.since,
      'reason', case when ${table}.paused is not null then k.reason end,
      'nextProbe', case when ${table}.paused is not null and k.state = 'open' then greatest(k.next_probe, ${table}.held_until) end,
      'failedAttempts', k.failures)
    from webhook_breakers k where k.webhook_id = ${table}.id) as breaker`;

/** Whether a breaker holds the deliveries of its webhook back. */
export function holdsBack(breaker: Breaker | null): boolean {
  return breaker !== null && breaker.state !== "closed";
}

/** Locks the breakers of several webhooks. Requires the lock of the webhooks. */
export async function lockBreakers(trx: Db, webhookIds: readonly bigint[]): Promise<void> {
  const breakers = trx("webhook_breakers").select("webhook_id").whereIn("webhook_id", webhookIds);
  await run(trx, breakers.orderBy("webhook_id").forNoKeyUpdate());
}

/** Gives a webhook a breaker, or its breaker other settings. Requires the lock of the webhook. */
export async function setBreaker(trx: Db, webhookId: bigint, settings: BreakerSettings): Promise<void> {
  await count(
    trx,
    `insert into webhook_breakers as b
        (webhook_id, max_failures, failing_s, probe_s, disable_s, disable_on_gone, resend)
      values (:webhookId::bigint, :failures::int, :failingSeconds::int, :probeSeconds::int, :disableSeconds::int,
        :disableOnGone::bool, :resendFailed::bool)
      on conflict (webhook_id) do update set max_failures = excluded.max_failures, failing_s = excluded.failing_s,
        probe_s = excluded.probe_s, disable_s = excluded.disable_s, disable_on_gone = excluded.disable_on_gone,
        resend = excluded.resend,
        -- A shorter interval takes effect at once.
        next_probe = least(b.next_probe, now() + make_interval(secs => excluded.probe_s)),
        due = case when b.state = 'open' then now() else b.due end`,
    { webhookId, ...settings },
  );
}

/** Removes breakers. Requires the lock of the webhooks. */
export async function removeBreakers(trx: Db, webhookIds: readonly bigint[]): Promise<void> {
  await run(trx, trx("webhook_breakers").whereIn("webhook_id", webhookIds).delete());
}

/** Forgets that the endpoint answered 410 Gone: the webhook's URL changes. Requires the lock of the webhook. */
export async function forgetGone(trx: Db, webhookId: bigint): Promise<void> {
  await run(trx, trx("webhook_breakers").where({ webhook_id: webhookId }).update({ gone: false }));
}

/**
 * Closes a breaker because a user paused or resumed its webhook; it counts anew. The outage lasts until an attempt
 * succeeds. What failed in one that has ended is sent again still. Requires the lock of the webhook.
 */
export async function closeBreakerForUser(trx: Db, webhookId: bigint): Promise<void> {
  await run(
    trx,
    trx("webhook_breakers")
      .where({ webhook_id: webhookId })
      .update({
        state: "closed",
        since: trx.raw("case when state = 'closed' then since else now() end"),
        reason: null,
        failures: 0,
        failing_since: null,
        succeeded: false,
        gone: false,
        probes: 0,
        next_probe: null,
        due: trx.raw("case when resend_until is not null and outage_since is null then now() end"),
      }),
  );
}
