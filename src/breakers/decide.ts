import { type AuditRecord, OPERATOR, recordChanges } from "../audit/index.ts";
import type { Owned } from "../calls/index.ts";
import { MAX_PROBE_INTERVAL_S } from "../contract/webhooks/circuit-breaker.ts";
import { count, type Db, rows, run, transactionWithRetry } from "../lib/pg/index.ts";
import { noticeDisabled } from "../notices/index.ts";
import { announceQueued, findOldest } from "../queue/index.ts";
import { withPartitions } from "../schema/index.ts";
import {
  type BreakerState,
  idsOf,
  raiseRevisions,
  removeBreakers,
  webhookTarget,
} from "../webhooks/index.ts";
import { RESEND_AGAIN_S, type ResendStep, resendStep } from "./resend.ts";

/** The maximum number of due breakers per transaction. A transaction locks their webhooks. */
export const MAX_DECIDED = 50;
/** The time, in seconds, after which a breaker with a probe is due again without a noted attempt: the probe may have ended without one. */
const LOOK_AGAIN_S = 60;

/** A breaker that has changed its state. */
export interface BreakerChange {
  webhookId: bigint;
  /** The normalised URL that requests go to. */
  targetUrl: string;
  was: BreakerState;
  state: BreakerState;
  reason: string | null;
}

/** The facts that a decision on a breaker depends on, as `COLUMNS` reads them. */
const FACTS = [
  // The webhook is paused, by a user or the breaker.
  "held",
  "opensNow",
  "disablesNow",
  "succeeded",
  "gone",
  // An outage lasts: since the last success, the breaker has opened or the webhook was disabled.
  "inOutage",
  "resending",
  "probeDue",
  // `webhooks.test_delivery` is set: a probe or a test event, which is sent although the webhook is paused.
  "probing",
  // The attempt of this delivery has no recorded result yet.
  "probeWaits",
] as const;
type BreakerFacts = Record<(typeof FACTS)[number], boolean>;

/** The row of a breaker, with its webhook. */
interface BreakerRow extends BreakerFacts, Owned {
  id: bigint;
  process: number;
  url: string;
  targetUrl: string;
  endpointId: string | null;
  /** The number of webhooks of the endpoint that have a breaker; 0 without an endpoint. */
  members: number;
  deleted: boolean;
  state: BreakerState;
  failures: number;
  /** The age of the first failure since the last success, in seconds; null if there is none. */
  failingS: number | null;
}

/** A breaker to decide on: of a webhook, or of an endpoint, whose webhooks have a row each. A fact is true if it is true of any row. */
interface Circuit extends BreakerFacts {
  rows: readonly BreakerRow[];
  ids: readonly bigint[];
  state: BreakerState;
  failures: number;
  failingS: number | null;
}

const COLUMNS = `
  w.id, w.process, w.url, w.target_url as "targetUrl", w.customer, w.installed_app_id as "installedAppId",
    w.endpoint_id as "endpointId", (
      select count(*)::int from webhooks s join webhook_breakers c on c.webhook_id = s.id
      where s.endpoint_id = w.endpoint_id and s.deleted is null
    ) as members,
    w.paused is not null as held, w.deleted is not null as deleted, b.state, b.failures,
    extract(epoch from now() - b.failing_since)::float8 as "failingS",
    coalesce(b.failures >= b.max_failures and b.failing_since <= now() - make_interval(secs => b.failing_s), false) as "opensNow",
    coalesce(b.failing_since <= now() - make_interval(secs => b.disable_s), false) as "disablesNow",
    b.succeeded or b.state = 'open' and exists (
      -- The probe has succeeded, but no fold has noted that yet.
      select from deliveries d where d.id = w.test_delivery and d.outcome = 'delivered') as succeeded,
    b.gone and b.disable_on_gone as gone, b.outage_since is not null as "inOutage",
    b.resend_until is not null as resending, coalesce(b.next_probe <= now() and (w.held_until > now()) is not true, false) as "probeDue",
    w.test_delivery is not null as probing,
    exists (select from queue q where q.id = w.test_delivery)
      or exists (select from retries t where t.id = w.test_delivery and t.attempts = w.probe_attempts) as "probeWaits"`;

const DUE = `
  select ${COLUMNS} from webhook_breakers b join webhooks w on w.id = b.webhook_id
  where b.due <= now() order by b.due limit ${MAX_DECIDED} for no key update of w, b skip locked`;

/** SQL for the rows of the other webhooks of endpoints that have a due breaker. */
const OTHERS = `
  select ${COLUMNS} from webhooks w join webhook_breakers b on b.webhook_id = w.id
  where w.endpoint_id = any(:endpointIds::uuid[]) and w.deleted is null and w.id <> all(:ids::bigint[])
  order by w.id for no key update of w, b skip locked`;

/**
 * Decides on breakers that are due: opens and closes them, chooses probes, disables webhooks, and sends deliveries again that failed in
 * an outage. Removes the breakers of deleted webhooks. Any number of processes may call it at once: only one locks a breaker, so that
 * each probe is chosen once. Uses the clock of the database.
 *
 * @param retentionDays the age, in days, from which deliveries are not sent again
 * @param maxPending the maximum number of pending deliveries of a webhook; more would fail. Defaults to 0: no limit
 * @returns the number of due breakers handled, at most `MAX_DECIDED`, and the breakers whose state has changed
 */
export function decideBreakers(
  db: Db,
  retentionDays: number,
  maxPending = 0,
): Promise<{ decided: number; changes: BreakerChange[] }> {
  const decide = async (trx: Db) => {
    const found = await rows<BreakerRow>(trx, DUE);
    const [deleted, due] = [found.filter((row) => row.deleted), found.filter((row) => !row.deleted)];
    await removeBreakers(trx, idsOf(deleted));
    const { circuits, skipped } = await circuitsOf(trx, due);
    const step = new Step(trx, { retentionDays, maxPending });
    for (const circuit of circuits) await step.decide(circuit);
    await step.end();
    return { decided: found.length - skipped, changes: step.changes };
  };
  // The event of a notice may need a partition that does not exist yet.
  return withPartitions(db, () => transactionWithRetry(db, decide));
}

/** Groups due rows into breakers, with the other rows of their endpoints. Leaves out endpoints of which another transaction locks a row. */
async function circuitsOf(
  trx: Db,
  due: readonly BreakerRow[],
): Promise<{ circuits: Circuit[]; skipped: number }> {
  const endpointIds = [...new Set(due.map(({ endpointId }) => endpointId).filter((id) => id !== null))];
  const others =
    endpointIds.length === 0
      ? []
      : await rows<BreakerRow>(trx, OTHERS, { endpointIds, ids: due.map(({ id }) => String(id)) });
  const groups = Map.groupBy([...due, ...others], ({ id, endpointId }) => endpointId ?? id);
  const whole = [...groups.values()].filter(([row, ...rest]) => rest.length + 1 >= (row?.members ?? 1));
  const decided = new Set(whole.flat());
  return { circuits: whole.map(circuitOf), skipped: due.filter((row) => !decided.has(row)).length };
}

/** In ascending order of what the breaker holds back: nothing, all deliveries except probes, all deliveries. */
const STATES: readonly BreakerState[] = ["closed", "open", "disabled"];

function circuitOf(members: readonly BreakerRow[]): Circuit {
  const facts = FACTS.map((fact) => [fact, members.some((row) => row[fact])]);
  const ages = members.map(({ failingS }) => failingS).filter((age) => age !== null);
  return {
    rows: members,
    ids: idsOf(members),
    // A webhook that is not paused counts as closed: an older version of the service, without breakers, may have resumed it.
    state: STATES.findLast((state) => members.some((row) => row.held && row.state === state)) ?? "closed",
    failures: Math.max(...members.map(({ failures }) => failures)),
    failingS: ages.length === 0 ? null : Math.max(...ages),
    ...(Object.fromEntries(facts) as BreakerFacts),
  };
}

/** The decisions of one transaction. */
class Step {
  readonly changes: BreakerChange[] = [];
  readonly #trx: Db;
  readonly #limits: { retentionDays: number; maxPending: number };
  readonly #entries: AuditRecord[] = [];
  /** The webhooks that the step has paused or resumed. */
  readonly #told: BreakerRow[] = [];
  #queued = false;

  /** @param limits as `decideBreakers` takes them */
  constructor(trx: Db, limits: { retentionDays: number; maxPending: number }) {
    this.#trx = trx;
    this.#limits = limits;
  }

  async decide(circuit: Circuit): Promise<void> {
    const { state } = circuit;
    if (circuit.gone && state !== "disabled") return this.#disable(circuit, "the endpoint answered 410 Gone");
    if (state === "open") return this.#decideOpen(circuit);
    if (state === "disabled") return this.#look(circuit.ids, "null");
    if (circuit.succeeded && circuit.inOutage) return this.#close(circuit);
    const opens = circuit.opensNow && !circuit.held;
    if (circuit.resending && !opens) return this.#resend(circuit);
    if (circuit.rows.some((row) => row.state !== "closed")) return this.#close(circuit);
    if (opens) return this.#open(circuit);
    return this.#look(circuit.ids, "null");
  }

  /** Tells workers, the audit log and subscribers to notices what was decided. */
  async end(): Promise<void> {
    await raiseRevisions(this.#trx, this.#told);
    await recordChanges(this.#trx, OPERATOR, this.#entries);
    const disabled = this.changes.filter(({ state }) => state === "disabled").map((each) => each.webhookId);
    await noticeDisabled(this.#trx, disabled);
    // PostgreSQL sends the notification when the transaction commits.
    if (this.#queued) await announceQueued(this.#trx);
  }

  async #decideOpen(circuit: Circuit): Promise<void> {
    if (circuit.succeeded) return this.#close(circuit);
    if (circuit.probeWaits) return this.#look(circuit.ids, `now() + interval '${LOOK_AGAIN_S} seconds'`);
    if (circuit.probing) {
      if (circuit.disablesNow) {
        return this.#disable(circuit, `no attempt has succeeded for ${periodInWords(circuit.failingS)}`);
      }
      return this.#planProbe(circuit);
    }
    if (circuit.probeDue) return this.#probe(circuit);
    // No probe is sent while the receiver wants no requests.
    const heldUntil = "(select w.held_until from webhooks w where w.id = webhook_id)";
    return this.#look(circuit.ids, `greatest(next_probe, ${heldUntil})`);
  }

  async #open(circuit: Circuit): Promise<void> {
    const reason = `${circuit.failures} attempts in a row have failed, over ${periodInWords(circuit.failingS)}`;
    await this.#set(
      circuit.ids,
      `state = 'open', since = now(), reason = :reason::text, succeeded = false, probes = 0,
        outage_since = coalesce(outage_since, failing_since - interval '1 minute'),
        next_probe = now() + make_interval(secs => probe_s), due = now() + make_interval(secs => probe_s)`,
      { reason },
    );
    await this.#hold(circuit.rows, true);
    this.#changed(circuit, "open", reason);
  }

  /** Closes a breaker: an attempt has succeeded, which ends the outage, or an older version of the service has resumed the webhook. */
  async #close(circuit: Circuit): Promise<void> {
    const { succeeded } = circuit;
    await this.#set(
      circuit.ids,
      `state = 'closed', since = case when state = 'closed' then since else now() end, reason = null, succeeded = false,
        gone = false, probes = 0, next_probe = null, failures = 0, failing_since = null,
        -- Includes failed deliveries of the previous outage that were not sent again yet.
        resend_from = case when resend and :succeeded::bool then least(resend_from, outage_since) end,
        resend_until = case when resend and :succeeded::bool then now() end, resend_after = null,
        outage_since = case when not :succeeded::bool then outage_since end,
        due = case when resend and :succeeded::bool then now() end`,
      { succeeded },
    );
    // Resumes only webhooks that the breaker has paused: a user may have paused the others.
    const paused = circuit.rows.filter((row) => row.held && row.state !== "closed");
    await this.#hold(paused, false);
    this.#queued = true;
    this.#changed(circuit, "closed", null);
  }

  async #disable(circuit: Circuit, reason: string): Promise<void> {
    await this.#set(
      circuit.ids,
      `state = 'disabled', since = now(), reason = :reason::text, succeeded = false, gone = false, next_probe = null,
        outage_since = coalesce(outage_since, failing_since - interval '1 minute', now() - interval '1 minute'), due = null`,
      { reason },
    );
    await this.#hold(circuit.rows, true);
    this.#changed(circuit, "disabled", reason);
  }

  /** Schedules the next probe after one that failed or ended without an attempt. The interval doubles each time, up to 300 s. */
  async #planProbe({ ids }: Circuit): Promise<void> {
    await run(
      this.#trx,
      this.#trx("webhooks").whereIn("id", ids).update({ test_delivery: null, probe_attempts: null }),
    );
    await count(
      this.#trx,
      `update webhook_breakers b set probes = b.probes + 1, next_probe = n.next_probe, due = n.next_probe
        from (
          select webhook_id,
            now() + make_interval(secs => least(${MAX_PROBE_INTERVAL_S}, probe_s * 2 ^ (least(probes, 10) + 1))) as next_probe
          from webhook_breakers where webhook_id = any(:ids::bigint[])
        ) n where b.webhook_id = n.webhook_id`,
      { ids: ids.map(String) },
    );
  }

  /** Chooses the oldest unclaimed delivery, pending or due for a retry, as the probe. Without one, tries again after `probe_s`. */
  async #probe({ ids }: Circuit): Promise<void> {
    const chosen = await findOldest(this.#trx, ids);
    if (!chosen) {
      const later = "now() + make_interval(secs => probe_s)";
      return this.#set(ids, `next_probe = ${later}, due = ${later}`);
    }
    const { id, webhookId, attempts } = chosen;
    const probe = { test_delivery: id, probe_attempts: attempts };
    await run(this.#trx, this.#trx("webhooks").where({ id: webhookId }).update(probe));
    this.#queued = true;
    return this.#look(ids, `now() + interval '${LOOK_AGAIN_S} seconds'`);
  }

  async #resend({ rows: members }: Circuit): Promise<void> {
    const { retentionDays, maxPending } = this.#limits;
    for (const { id, resending } of members) {
      const { entries, left }: ResendStep = resending
        ? await resendStep(this.#trx, id, retentionDays, maxPending)
        : { entries: [], left: "nothing" };
      this.#entries.push(...entries);
      this.#queued ||= entries.length > 0;
      await this.#look([id], NEXT_RESEND[left]);
    }
  }

  /** Sets when the breakers are due again. @param due SQL for the time; `null` until something is noted for them */
  async #look(ids: readonly bigint[], due: string): Promise<void> {
    await this.#set(ids, `due = ${due}`);
  }

  async #set(
    ids: readonly bigint[],
    values: string,
    bindings: { reason?: string; succeeded?: boolean } = {},
  ): Promise<void> {
    await count(this.#trx, `update webhook_breakers set ${values} where webhook_id = any(:ids::bigint[])`, {
      ids: ids.map(String),
      ...bindings,
    });
  }

  /** Pauses webhooks if `back`, otherwise resumes them. Notes them, so that `end` tells the workers. */
  async #hold(webhooks: readonly BreakerRow[], back: boolean): Promise<void> {
    await count(
      this.#trx,
      // What belongs to a paused customer waits for it.
      `update webhooks w set paused = case when :back::bool or h.by_customer then coalesce(w.paused, now()) end,
          customer_paused = h.by_customer and not :back::bool, test_delivery = null, probe_attempts = null
        from (
          select k.id, exists (select from customers c where c.id = k.customer and c.paused is not null) as by_customer
          from webhooks k where k.id = any(:ids::bigint[])
        ) h where w.id = h.id`,
      { ids: webhooks.map(({ id }) => String(id)), back },
    );
    this.#told.push(...webhooks);
  }

  #changed({ rows: members }: Circuit, state: BreakerState, reason: string | null): void {
    for (const row of members) {
      const { id, targetUrl, state: was } = row;
      if (was === state) continue;
      this.changes.push({ webhookId: id, targetUrl, was, state, reason });
      this.#entries.push({
        action: ACTIONS[state],
        target: webhookTarget(row),
        before: { circuit_breaker_state: was },
        after: { circuit_breaker_state: state, ...(reason === null ? {} : { reason }) },
      });
    }
  }
}

/** SQL for when a breaker that sends failed deliveries again is due again, by what the last step has left. */
const NEXT_RESEND: Record<ResendStep["left"], string> = {
  nothing: "null",
  some: "now()",
  "no room": `now() + interval '${RESEND_AGAIN_S} seconds'`,
};

const ACTIONS = {
  open: "webhook_breaker_opened",
  closed: "webhook_breaker_closed",
  disabled: "webhook_disabled",
} as const;

/** A duration in the largest unit that it contains at least twice: `45 seconds`, `31 minutes`, `5 days`. */
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
