import type { HealthChange } from "../health/index.ts";
import { type Db, plainArray, rows, textArray } from "../lib/pg/index.ts";
import { ofWebhook } from "../queue/index.ts";
import { firstIdOf } from "../schema/index.ts";
import { causeOfLatest, subjectOf } from "./causes.ts";

/**
 * The time after which a webhook whose errors have another cause moves to the incident of that cause, in seconds. An overloaded host
 * alternates between causes.
 */
const MOVES_AFTER_S = 60;
/** The time within which an incident that begins again is the same one, in minutes. */
const REOPENS_WITHIN_MIN = 5;
/** The delay before the deliveries of a webhook that has left an incident are counted, in seconds. */
export const FIRST_CHECK_S = 15;

/** An incident that was opened or has ended. */
export interface IncidentChange {
  id: string;
  change: "opened" | "closed";
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
 * @returns what was opened or has ended
 */
export async function trackIncidents(trx: Db, judged: readonly HealthChange[]): Promise<IncidentChange[]> {
  const failing: Failing[] = [];
  const recovered: bigint[] = [];
  for (const { webhookId, targetUrl, was, health, since, lastError } of judged) {
    if (health === "failing") {
      const cause = causeOfLatest(lastError ?? "");
      const subject = subjectOf(cause, targetUrl);
      failing.push({ webhookId, since, cause: cause.code, subject, error: lastError ?? cause.summary });
    } else if (was === "failing") recovered.push(webhookId);
  }
  if (failing.length + recovered.length === 0) return [];
  const current = await currentIncidents(
    trx,
    failing.map(({ webhookId }) => webhookId),
  );
  const joining: Failing[] = [];
  const leaving = [...recovered];
  const differs: bigint[] = [];
  const agrees: bigint[] = [];
  for (const each of failing) {
    const { webhookId } = each;
    const now = current.get(webhookId);
    const isSame = now?.cause === each.cause && now.subject === each.subject;
    if (isSame && now.differs) agrees.push(webhookId);
    if (isSame) continue;
    if (!now || now.moves) joining.push(each);
    else if (!now.differs) differs.push(webhookId);
    if (now?.moves) leaving.push(webhookId);
  }
  await noteDiffering(trx, differs, agrees);
  const closed = await leaveIncidents(trx, leaving);
  const opened = await joinIncidents(trx, joining);
  return [...closed, ...opened];
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

async function noteDiffering(trx: Db, differs: readonly bigint[], agrees: readonly bigint[]): Promise<void> {
  if (differs.length + agrees.length === 0) return;
  await rows(
    trx,
    `update incident_webhooks set differs = case when webhook_id = any(:differs::bigint[]) then now() end
      where webhook_id = any(:differs::bigint[] || :agrees::bigint[]) and ended is null and not warning`,
    { differs: plainArray(differs), agrees: plainArray(agrees) },
  );
}

/** Ends the incidents of webhooks, or the warnings about them, for these webhooks. @returns the incidents that no webhook is left in */
export async function leaveIncidents(
  trx: Db,
  webhookIds: readonly bigint[],
  warning = false,
): Promise<IncidentChange[]> {
  if (webhookIds.length === 0) return [];
  return rows<IncidentChange>(
    trx,
    `with ended as (
        update incident_webhooks set ended = now(), differs = null, last_delivery = new_event_id(),
          check_at = case when not warning then now() + interval '${FIRST_CHECK_S} seconds' end
        where webhook_id = any(:ids::bigint[]) and ended is null and warning = :warning::bool returning incident_id
      ),
      changed as (
        update incidents i set failing = i.failing - n, closed = case when i.failing <= n then now() end
        from (select incident_id, count(*)::int as n from ended group by 1) e
        where i.id = e.incident_id returning i.id, i.closed
      )
      select id, 'closed' as change from changed where closed is not null`,
    { ids: plainArray(webhookIds), warning },
  );
}

/** Adds webhooks to the incidents of their causes, or to warnings. @returns the incidents that were opened */
export async function joinIncidents(
  trx: Db,
  joining: readonly Failing[],
  warning = false,
): Promise<IncidentChange[]> {
  if (joining.length === 0) return [];
  const first = new Map<string, Failing>();
  for (const each of joining) {
    const key = `${each.cause} ${each.subject}`;
    const other = first.get(key);
    if (!other || each.since < other.since) first.set(key, each);
  }
  const incidents = await openIncidents(trx, [...first.values()], warning);
  const idOf = new Map(incidents.map(({ cause, subject, id }) => [`${cause} ${subject}`, id]));
  await rows(
    trx,
    `with given as (
        select * from unnest(:incidents::uuid[], :webhooks::bigint[], :since::timestamptz[], :firsts::uuid[], :errors::text[])
          as g(incident_id, webhook_id, since, first_id, error)
      ),
      joined as (
        insert into incident_webhooks as m (incident_id, webhook_id, since, warning, error, first_delivery)
        select g.incident_id, g.webhook_id, g.since, :warning::bool, g.error, least(g.first_id, (${oldest("queue")}), (${oldest("retries")}))
        from given g order by g.incident_id, g.webhook_id
        on conflict (incident_id, webhook_id) do update set ended = null, last_delivery = null, check_at = null,
          error = excluded.error, first_delivery = least(m.first_delivery, excluded.first_delivery)
        returning incident_id, xmax = 0 as is_new
      )
      update incidents i set failing = i.failing + n, webhooks = i.webhooks + fresh
      from (select incident_id, count(*)::int as n, count(*) filter (where is_new)::int as fresh from joined group by 1) j
      where i.id = j.incident_id`,
    {
      incidents: plainArray(joining.map(({ cause, subject }) => idOf.get(`${cause} ${subject}`) as string)),
      webhooks: plainArray(joining.map(({ webhookId }) => webhookId)),
      since: plainArray(joining.map(({ since }) => since.toISOString())),
      firsts: plainArray(joining.map(({ since }) => firstIdOf(since))),
      errors: textArray(joining.map(({ error }) => error)),
      warning,
    },
  );
  return incidents.filter(({ isOpened }) => isOpened).map(({ id }) => ({ id, change: "opened" }));
}

/** SQL for the oldest open delivery of webhook `g` in a table. */
const oldest = (table: "queue" | "retries") =>
  `select t.id from ${table} t where ${ofWebhook("t", "g.webhook_id")} order by t.webhook_id, t.id limit 1`;

/** The open incidents of causes: those that are open, those that have just ended and begin again, and new ones. */
function openIncidents(trx: Db, wanted: readonly Failing[], warning: boolean) {
  return rows<{ id: string; cause: string; subject: string; isOpened: boolean }>(
    trx,
    `with wanted as (
        select * from unnest(:causes::text[], :subjects::text[], :since::timestamptz[]) as w(cause, subject, since)
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
      select id, cause, subject, closed is not null as "isOpened" from known
      union all select id, cause, subject, true from fresh`,
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
export async function leaveForgotten(trx: Db): Promise<IncidentChange[]> {
  const left = await rows<{ webhookId: bigint }>(
    trx,
    `select m.webhook_id as "webhookId" from incident_webhooks m
      where m.ended is null and not m.warning and not exists (
        select from webhook_health h join webhooks w on w.id = h.webhook_id and w.deleted is null
        where h.webhook_id = m.webhook_id and h.health = 'failing')`,
  );
  return leaveIncidents(
    trx,
    left.map(({ webhookId }) => webhookId),
  );
}
