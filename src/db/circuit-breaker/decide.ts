import { MAX_PROBE_INTERVAL_S } from "../../contract/webhooks/circuit-breaker.ts";
import { type AuditRecord, OPERATOR, recordChanges, webhookTarget } from "../audit/audit-log.ts";
import { count, type Db, rows, run } from "../database.ts";
import { noticeDisabled } from "../events/notices.ts";
import { withPartitions } from "../partitions.ts";
import { announceQueued, raiseRevisions } from "../queue/changes.ts";
import { isFree } from "../queue/workers.ts";
import { type BreakerState, removeBreakers } from "./breakers.ts";
import { resendStep } from "./resend.ts";

/** The maximum number of breakers decided on by one transaction, which locks their webhooks. */
export const MAX_DECIDED = 50;
/** Waiting retries of a webhook among which a probe is searched, oldest first. */
const MAX_SEARCHED = 100;
/** The time after which a probe is looked at though no attempt was noted: it may have ended without one, in seconds. */
const LOOK_AGAIN_S = 60;

/** A breaker that has changed its state. */
export interface BreakerChange {
  webhookId: bigint;
  /** As requested. */
  targetUrl: string;
  was: BreakerState;
  state: BreakerState;
  reason: string | null;
}

/** A breaker that is due, with its webhook. */
interface DueBreaker {
  id: bigint;
  process: number;
  url: string;
  targetUrl: string;
  installedAppId: string | null;
  /** Whether the webhook is paused, by a user or the breaker. */
  held: boolean;
  deleted: boolean;
  state: BreakerState;
  failures: number;
  /** The age of the first failure, in seconds; null for none. */
  failingS: number | null;
  opensNow: boolean;
  disablesNow: boolean;
  succeeded: boolean;
  gone: boolean;
  /** Whether the breaker has opened since the last success. */
  inOutage: boolean;
  resending: boolean;
  probeDue: boolean;
  /** Whether a probe or a test event was let through. */
  probing: boolean;
  /** Whether its attempt has no result yet. */
  probeWaits: boolean;
}

const DUE = `
  select w.id, w.process, w.url, w.target_url as "targetUrl", w.installed_app_id as "installedAppId",
    w.paused is not null as held, w.deleted is not null as deleted, b.state, b.failures,
    extract(epoch from now() - b.failing_since)::float8 as "failingS",
    coalesce(b.failures >= b.max_failures and b.failing_since <= now() - make_interval(secs => b.failing_s), false) as "opensNow",
    coalesce(b.failing_since <= now() - make_interval(secs => b.disable_s), false) as "disablesNow",
    b.succeeded or b.state = 'open' and exists (
      -- A probe that no fold has noted yet.
      select from deliveries d where d.id = w.test_delivery and d.outcome = 'delivered') as succeeded, b.gone and b.disable_on_gone as gone, b.outage_since is not null as "inOutage",
    b.resend_until is not null as resending, coalesce(b.next_probe <= now(), false) as "probeDue",
    w.test_delivery is not null as probing,
    exists (select from queue q where q.id = w.test_delivery)
      or exists (select from retries t where t.id = w.test_delivery and t.attempts = w.probe_attempts) as "probeWaits"
  from webhook_breakers b join webhooks w on w.id = b.webhook_id
  where b.due <= now() order by b.due limit ${MAX_DECIDED} for no key update of w, b skip locked`;

/**
 * Decides on breakers that are due: opens and closes them, lets a probe through, disables webhooks, and sends again what
 * failed in an outage. Any number of processes may do so at once: a breaker is locked by one of them, so that each probe
 * is chosen once. The clock is the database's.
 *
 * @param retentionDays deliveries older than this are not sent again
 * @returns how many were decided on, and those that have changed their state
 */
export function decideBreakers(
  db: Db,
  retentionDays: number,
): Promise<{ decided: number; changes: BreakerChange[] }> {
  const decide = async (trx: Db) => {
    const due = await rows<DueBreaker>(trx, DUE);
    const step = new Step(trx, retentionDays);
    for (const breaker of due) await step.decide(breaker);
    await step.end();
    return { decided: due.length, changes: step.changes };
  };
  // A notice may need a partition.
  return withPartitions(db, () => db.transaction(decide));
}

/** The decisions of one transaction. */
class Step {
  readonly changes: BreakerChange[] = [];
  readonly #trx: Db;
  readonly #retentionDays: number;
  readonly #entries: AuditRecord[] = [];
  /** The event types of webhooks that are held back from now on, or no longer. */
  readonly #processes = new Set<number>();
  #queued = false;

  constructor(trx: Db, retentionDays: number) {
    this.#trx = trx;
    this.#retentionDays = retentionDays;
  }

  async decide(breaker: DueBreaker): Promise<void> {
    if (breaker.deleted) return removeBreakers(this.#trx, [breaker.id]);
    // A version without breakers has resumed the webhook.
    const state = breaker.held ? breaker.state : "closed";
    if (breaker.gone && state !== "disabled") return this.#disable(breaker, "the endpoint answered 410 Gone");
    if (state === "open") return this.#decideOpen(breaker);
    if (state === "disabled") return this.#look(breaker, "null");
    if (breaker.succeeded && breaker.inOutage) return this.#close(breaker);
    if (breaker.resending) return this.#resend(breaker);
    if (breaker.state !== "closed") return this.#close(breaker);
    if (breaker.opensNow && !breaker.held) return this.#open(breaker);
    return this.#look(breaker, "null");
  }

  /** Tells workers, the audit log and subscribers to notices what was decided. */
  async end(): Promise<void> {
    await raiseRevisions(this.#trx, this.#processes);
    await recordChanges(this.#trx, OPERATOR, this.#entries);
    const disabled = this.changes.filter(({ state }) => state === "disabled");
    await noticeDisabled(
      this.#trx,
      disabled.map(({ webhookId }) => webhookId),
    );
    // Sent when the transaction is committed.
    if (this.#queued) await announceQueued(this.#trx);
  }

  async #decideOpen(breaker: DueBreaker): Promise<void> {
    if (breaker.succeeded) return this.#close(breaker);
    if (breaker.probeWaits) return this.#look(breaker, `now() + interval '${LOOK_AGAIN_S} seconds'`);
    if (breaker.probing) {
      if (breaker.disablesNow) {
        return this.#disable(breaker, `no attempt has succeeded for ${periodInWords(breaker.failingS)}`);
      }
      return this.#planProbe(breaker);
    }
    if (breaker.probeDue) return this.#probe(breaker);
    return this.#look(breaker, "next_probe");
  }

  async #open(breaker: DueBreaker): Promise<void> {
    const reason = `${breaker.failures} attempts in a row have failed, over ${periodInWords(breaker.failingS)}`;
    await this.#set(
      breaker,
      `state = 'open', since = now(), reason = :reason::text, succeeded = false, probes = 0,
        outage_since = coalesce(outage_since, failing_since - interval '1 minute'),
        next_probe = now() + make_interval(secs => probe_s), due = now() + make_interval(secs => probe_s)`,
      { reason },
    );
    await this.#hold(breaker, true);
    this.#changed(breaker, "open", reason);
  }

  /** An attempt has succeeded, which ends the outage; or a version without breakers has resumed the webhook. */
  async #close(breaker: DueBreaker): Promise<void> {
    const wasHeld = breaker.held && breaker.state !== "closed";
    await this.#set(
      breaker,
      `state = 'closed', since = case when state = 'closed' then since else now() end, reason = null, succeeded = false,
        gone = false, probes = 0, next_probe = null, failures = 0, failing_since = null,
        resend_from = case when resend and :succeeded::bool then outage_since end,
        resend_until = case when resend and :succeeded::bool then now() end, resend_after = null,
        outage_since = case when not :succeeded::bool then outage_since end,
        due = case when resend and :succeeded::bool then now() end`,
      { succeeded: breaker.succeeded },
    );
    if (wasHeld) await this.#hold(breaker, false);
    this.#queued = true;
    if (breaker.state !== "closed") this.#changed(breaker, "closed", null);
  }

  async #disable(breaker: DueBreaker, reason: string): Promise<void> {
    await this.#set(
      breaker,
      `state = 'disabled', since = now(), reason = :reason::text, succeeded = false, gone = false, next_probe = null,
        outage_since = coalesce(outage_since, failing_since - interval '1 minute', now() - interval '1 minute'), due = null`,
      { reason },
    );
    await this.#hold(breaker, true);
    this.#changed(breaker, "disabled", reason);
  }

  /** A probe has failed, or ended without an attempt. */
  async #planProbe({ id }: DueBreaker): Promise<void> {
    await run(
      this.#trx,
      this.#trx("webhooks").where({ id }).update({ test_delivery: null, probe_attempts: null }),
    );
    await count(
      this.#trx,
      `update webhook_breakers b set probes = b.probes + 1, next_probe = n.next_probe, due = n.next_probe
        from (
          select now() + make_interval(secs => least(${MAX_PROBE_INTERVAL_S}, probe_s * 2 ^ (least(probes, 10) + 1))) as next_probe
          from webhook_breakers where webhook_id = :id::bigint
        ) n where b.webhook_id = :id::bigint`,
      { id },
    );
  }

  /** Lets the oldest delivery through that can be sent now. */
  async #probe(breaker: DueBreaker): Promise<void> {
    const chosen = await count(
      this.#trx,
      `update webhooks w set test_delivery = p.id, probe_attempts = p.attempts from (
          (select q.id, null::smallint as attempts from queue q
            where q.webhook_id = :id::bigint and ${isFree("q")} order by q.id limit 1)
          union all
          (select t.id, t.attempts from (
              select t.id, t.attempts, t.due from retries t
              where t.webhook_id = :id::bigint and ${isFree("t")} order by t.id limit ${MAX_SEARCHED}
            ) t where t.due <= now() order by t.id limit 1)
          order by 1 limit 1
        ) p where w.id = :id::bigint`,
      { id: breaker.id },
    );
    this.#queued ||= chosen > 0;
    return this.#look(
      breaker,
      chosen > 0 ? `now() + interval '${LOOK_AGAIN_S} seconds'` : "now() + make_interval(secs => probe_s)",
    );
  }

  async #resend(breaker: DueBreaker): Promise<void> {
    const { entries, ended } = await resendStep(this.#trx, breaker.id, this.#retentionDays);
    this.#entries.push(...entries);
    this.#queued ||= entries.length > 0;
    await this.#look(breaker, ended ? "null" : "now()");
  }

  /** @param due when to decide on it again: an SQL expression */
  async #look(breaker: DueBreaker, due: string): Promise<void> {
    await this.#set(breaker, `due = ${due}`);
  }

  async #set(
    { id }: DueBreaker,
    values: string,
    bindings: { reason?: string; succeeded?: boolean } = {},
  ): Promise<void> {
    await count(this.#trx, `update webhook_breakers set ${values} where webhook_id = :id::bigint`, {
      id,
      ...bindings,
    });
  }

  /** Holds a webhook's deliveries back, or no longer. The revision of the event type tells the workers. */
  async #hold({ id, process }: DueBreaker, back: boolean): Promise<void> {
    await count(
      this.#trx,
      `update webhooks set paused = case when :back::bool then coalesce(paused, now()) end, test_delivery = null,
          probe_attempts = null where id = :id::bigint`,
      { id, back },
    );
    this.#processes.add(process);
  }

  #changed(breaker: DueBreaker, state: BreakerState, reason: string | null): void {
    const { id, targetUrl, state: was } = breaker;
    this.changes.push({ webhookId: id, targetUrl, was, state, reason });
    this.#entries.push({
      action: ACTIONS[state],
      target: webhookTarget(breaker),
      before: { circuit_breaker_state: was },
      after: { circuit_breaker_state: state, ...(reason === null ? {} : { reason }) },
    });
  }
}

const ACTIONS = {
  open: "webhook_breaker_opened",
  closed: "webhook_breaker_closed",
  disabled: "webhook_disabled",
} as const;

/** `45 seconds`, `31 minutes`, `5 days`. */
function periodInWords(seconds: number | null): string {
  const [length, unit] = UNITS.find(([length]) => (seconds ?? 0) >= 2 * length) ?? [1, "second"];
  const n = Math.floor((seconds ?? 0) / length);
  return `${n} ${unit}${n === 1 ? "" : "s"}`;
}

const UNITS: [number, string][] = [
  [86_400, "day"],
  [3_600, "hour"],
  [60, "minute"],
];
