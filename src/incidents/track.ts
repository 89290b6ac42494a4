import type { HealthChange } from "../health/index.ts";
import { type Bindings, type Db, plainArray, rows, textArray } from "../lib/pg/index.ts";
import { ofWebhook } from "../queue/index.ts";
import { firstIdOf } from "../schema/index.ts";
import { causeOfLatest, subjectOf } from "./causes.ts";
import { zonesOf } from "./dns-zones.ts";

/**
 * The time after which a webhook whose errors have another cause moves to the incident of that cause, in seconds. An overloaded host
 * alternates between causes.
 */
const MOVES_AFTER_S = 60;
/** The time within which an incident that begins again is the same one, in minutes. */
const REOPENS_WITHIN_MIN = 5;
/** The delay before the deliveries of a webhook that has left an incident are counted, in seconds. */
export const FIRST_CHECK_S = 15;

/** A webhook that was added to an incident, or that an incident has ended for. */
export interface IncidentChange {
  /** The id of the incident. */
  id: string;
  /** The id under which keys of the webhook's customer see the incident; the same for the operator's webhooks. */
  shownId: string;
  webhookId: bigint;
  change: "joined" | "left";
}

/** A failing webhook and the incident that its latest error belongs to. */
interface Failing {
  webhookId: bigint;
  since: Date;
  cause: string;
  subject: string;
  error: string;
}

/**
 * Brings incidents up to date with webhooks whose health was judged. Requires the transaction that judged them, and that no other one does
 * so at the same time.
 *
 * @returns which webhooks were added to incidents, or have left them
 */
export async function trackIncidents(trx: Db, judged: readonly HealthChange[]): Promise<IncidentChange[]> {
  const found: Failing[] = [];
  const leaving: bigint[] = [];
  for (const { webhookId, targetUrl, was, health, since, lastError } of judged) {
    if (health === "failing") {
      const cause = causeOfLatest(lastError ?? "");
      const subject = subjectOf(cause, targetUrl);
      found.push({ webhookId, since, cause: cause.code, subject, error: lastError ?? cause.summary });
    } else if (was === "failing") leaving.push(webhookId);
  }
  if (found.length + leaving.length === 0) return [];
  const zones = await zonesOf(trx, found);
  const failing = found.map((each) => ({ ...each, subject: zones.get(each.webhookId) ?? each.subject }));
  const current = await currentIncidents(
    trx,
    failing.map(({ webhookId }) => webhookId),
  );
  const joining: Failing[] = [];
  /** Webhooks whose errors begin to differ from the cause of their incident, or agree with it again. */
  const changed: bigint[] = [];
  for (const each of failing) {
    const { webhookId } = each;
    const now = current.get(webhookId);
    const differs = now?.cause !== each.cause || now.subject !== each.subject;
    if (now && !(differs && now.moves)) {
      if (differs !== now.differs) changed.push(webhookId);
      continue;
    }
    joining.push(each);
    if (now) leaving.push(webhookId);
  }
  await noteChanged(trx, changed);
  const isLeaving = "m.webhook_id = any(:ids::bigint[])";
  const left = leaving.length > 0 ? await leaveIncidents(trx, isLeaving, { ids: plainArray(leaving) }) : [];
  return [...left, ...(await joinIncidents(trx, joining))];
}

async function currentIncidents(trx: Db, webhookIds: readonly bigint[]) {
  const found = await rows<{
    webhookId: bigint;
    cause: string;
    subject: string;
    differs: boolean;
    moves: boolean;
  }>(
    trx,
    `select m.webhook_id as "webhookId", i.cause, i.subject, m.differs is not null as differs,
        i.cause = 'unknown' or coalesce(m.differs < now() - interval '${MOVES_AFTER_S} seconds', false) as moves
      from incident_webhooks m join incidents i on i.id = m.incident_id
      where m.webhook_id = any(:ids::bigint[]) and m.ended is null and not m.warning`,
    { ids: plainArray(webhookIds) },
  );
  return new Map(found.map((each) => [each.webhookId, each]));
}

/** Stores since when the errors of webhooks differ from the cause of their incident, or that they agree with it again. */
async function noteChanged(trx: Db, webhookIds: readonly bigint[]): Promise<void> {
  if (webhookIds.length === 0) return;
  await rows(
    trx,
    `update incident_webhooks set differs = case when differs is null then now() end
      where webhook_id = any(:ids::bigint[]) and ended is null and not warning`,
    { ids: plainArray(webhookIds) },
  );
}

/**
 * Ends incidents, or warnings, for webhooks.
 *
 * @param condition SQL for which webhooks `m` of open incidents, or of warnings
 * @returns the webhooks
 */
export function leaveIncidents(
  trx: Db,
  condition: string,
  bindings: Bindings = {},
  warning = false,
): Promise<IncidentChange[]> {
  return rows<IncidentChange>(
    trx,
    `with ended as (
        update incident_webhooks m set ended = now(), differs = null, last_delivery = new_event_id(),
          check_at = case when not warning then now() + interval '${FIRST_CHECK_S} seconds' end
        where m.ended is null and m.warning = :warning::bool and ${condition}
        returning incident_id, shown_id, webhook_id
      ),
      changed as (
        update incidents i set failing = i.failing - n, closed = case when i.failing <= n then now() end
        from (select incident_id, count(*)::int as n from ended group by 1) e
        where i.id = e.incident_id
      )
      select incident_id as id, shown_id as "shownId", webhook_id as "webhookId", 'left' as change from ended`,
    { ...bindings, warning },
  );
}

/**
 * Adds webhooks to the incidents of their causes, or to warnings. A customer sees an incident under another id once none of its webhooks
 * has been in the incident for some minutes, whether webhooks of others are in it or not.
 *
 * @returns the webhooks
 */
export async function joinIncidents(
  trx: Db,
  joining: readonly Failing[],
  warning = false,
): Promise<IncidentChange[]> {
  if (joining.length === 0) return [];
  const incidents = await openIncidents(trx, joining, warning);
  const idOf = new Map(incidents.map(({ cause, subject, id }) => [`${cause} ${subject}`, id]));
  return rows<IncidentChange>(
    trx,
    `with given as materialized (
        select g.*, w.customer
        from unnest(:incidents::uuid[], :webhooks::bigint[], :since::timestamptz[], :firsts::uuid[], :errors::text[])
          as g(incident_id, webhook_id, since, first_id, error) join webhooks w on w.id = g.webhook_id
      ),
      shown as materialized (
        select g.incident_id, g.customer, coalesce(known.id, new_event_id()) as id
        from (select distinct incident_id, customer from given) g left join lateral (
          select g.incident_id as id where g.customer is null
          union all (
            select m.shown_id from incident_webhooks m where m.incident_id = g.incident_id and m.customer = g.customer
              and (m.ended is null or m.ended > now() - interval '${REOPENS_WITHIN_MIN} minutes')
            order by m.ended desc limit 1
          )
        ) known on true
      ),
      joined as (
        insert into incident_webhooks as m (incident_id, webhook_id, customer, shown_id, since, warning, error, first_delivery)
        select g.incident_id, g.webhook_id, g.customer, s.id, g.since, :warning::bool, g.error,
          least(g.first_id, (${oldest("queue")}), (${oldest("retries")}))
        from given g join shown s on s.incident_id = g.incident_id and s.customer is not distinct from g.customer
        order by g.incident_id, g.webhook_id
        on conflict (shown_id, webhook_id) do update set ended = null, last_delivery = null, check_at = null,
          error = excluded.error, first_delivery = least(m.first_delivery, excluded.first_delivery)
        returning incident_id, shown_id, webhook_id, xmax = 0 as is_new
      ),
      counted as (
        update incidents i set failing = i.failing + n, webhooks = i.webhooks + fresh
        from (
          select j.incident_id, count(*)::int as n, count(*) filter (where is_new and not exists (
            select from incident_webhooks m where m.incident_id = j.incident_id and m.webhook_id = j.webhook_id))::int as fresh
          from joined j group by 1
        ) j
        where i.id = j.incident_id
      )
      select incident_id as id, shown_id as "shownId", webhook_id as "webhookId", 'joined' as change from joined`,
    {
      incidents: plainArray(joining.map(({ cause, subject }) => idOf.get(`${cause} ${subject}`) as string)),
      webhooks: plainArray(joining.map(({ webhookId }) => webhookId)),
      since: plainArray(joining.map(({ since }) => since.toISOString())),
      firsts: plainArray(joining.map(({ since }) => firstIdOf(since))),
      errors: textArray(joining.map(({ error }) => error)),
      warning,
    },
  );
}

/** SQL for the oldest open delivery of webhook `g` in a table. */
const oldest = (table: "queue" | "retries") =>
  `select t.id from ${table} t where ${ofWebhook("t", "g.webhook_id")} order by t.webhook_id, t.id limit 1`;

/** The open incidents of causes: those that are open, those that have just ended and begin again, and new ones. */
function openIncidents(trx: Db, wanted: readonly Failing[], warning: boolean) {
  return rows<{ id: string; cause: string; subject: string }>(
    trx,
    `with wanted as (
        select cause, subject, min(since) as since
        from unnest(:causes::text[], :subjects::text[], :since::timestamptz[]) as w(cause, subject, since) group by cause, subject
      ),
      known as (
        select distinct on (w.cause, w.subject) w.cause, w.subject, i.id, i.closed
        from wanted w join incidents i on i.subject = w.subject and i.cause = w.cause
        where i.closed is null or i.closed > now() - interval '${REOPENS_WITHIN_MIN} minutes'
        order by w.cause, w.subject, i.closed desc nulls first
      ),
      reopened as (
        update incidents i set closed = null from known k where i.id = k.id and k.closed is not null
      ),
      fresh as (
        insert into incidents (cause, subject, opened, warning)
        select cause, subject, since, :warning::bool from wanted w
        where not exists (select from known k where (k.cause, k.subject) = (w.cause, w.subject))
        returning id, cause, subject
      )
      select id, cause, subject from known union all select id, cause, subject from fresh`,
    {
      causes: textArray(wanted.map(({ cause }) => cause)),
      subjects: textArray(wanted.map(({ subject }) => subject)),
      since: plainArray(wanted.map(({ since }) => since.toISOString())),
      warning,
    },
  );
}

/**
 * Ends the incidents of webhooks that do not fail any more without having been judged: they were deleted, or nothing is known about them any
 * more. Requires what `trackIncidents` does.
 */
export function leaveForgotten(trx: Db): Promise<IncidentChange[]> {
  return leaveIncidents(
    trx,
    `not exists (
      select from webhook_health h join webhooks w on w.id = h.webhook_id and w.deleted is null
      where h.webhook_id = m.webhook_id and h.health = 'failing')`,
  );
}
