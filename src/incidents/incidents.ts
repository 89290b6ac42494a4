import type { Incident, IncidentWebhook } from "../../gen/webhook/v1/incident_pb.ts";
import { type Scope, webhookIn } from "../calls/index.ts";
import type { FieldsOf } from "../contract/present.ts";
import { type Bindings, type Db, plainArray, rows } from "../lib/pg/index.ts";
import { failedAttempts } from "../stats/index.ts";

/** The maximum number of webhooks of an incident whose deliveries are counted. */
export const MAX_MEASURED = 10_000;
/** The maximum number of deliveries of a webhook that are counted, waiting and failed ones each. */
const MAX_COUNTED = 10_000;
/** The period of the failed attempts, in minutes, the current one included. */
const TREND_MIN = 5;

/** The times of an incident, or of a webhook in it. */
export interface IncidentTimes {
  since: Date;
  ended: Date | null;
  nextAttempt: Date | null;
}

/** An incident as a scope shows it. `lastError` is that of one of the webhooks, as `causeOfLatest` takes it. */
export interface IncidentRow extends IncidentTimes, FieldsOf<Incident, "cause" | keyof IncidentTimes> {
  cause: string;
  /** Microseconds since 1970; null while it is open. */
  endedUs: bigint | null;
}

/** A webhook in an incident. */
export interface IncidentWebhookRow
  extends IncidentTimes,
    Pick<IncidentWebhook, "url" | "waiting" | "failed" | "recovered" | "lastError"> {
  id: bigint;
  name: string | null;
  process: number;
  customer: string | null;
}

/** Restricts a list of incidents. Fields that are not set do not restrict. */
export interface IncidentFilter {
  open?: boolean | undefined;
  webhookId?: bigint | undefined;
  subject?: string | undefined;
}

/** A place in the list of incidents: the end, in microseconds since 1970, null for open ones; and the id. */
export interface IncidentPosition {
  endedUs: bigint | null;
  id: string;
}

const END = "coalesce(i.closed, 'infinity'::timestamptz)";

/** The incidents of a scope. In a limited one, only its webhooks count, and an incident is open while one of them fails. */
function incidentsIn(scope: Scope): string {
  if (scope === "everything") return "incidents";
  return `(
    select m.shown_id as id, i.cause, i.subject, i.warning, min(m.since) as opened,
      case when bool_or(m.ended is null) then null else max(m.ended) end as closed,
      count(*)::int as webhooks, count(*) filter (where m.ended is null)::int as failing
    from webhooks w join incident_webhooks m on m.webhook_id = w.id join incidents i on i.id = m.incident_id
    where ${webhookIn(scope, "w").sql} group by m.shown_id, i.id)`;
}

/** The column of incident_webhooks with the ids of the scope's incidents: what a customer sees does not depend on webhooks of others. */
const idIn = (scope: Scope) => (scope === "everything" ? "incident_id" : "shown_id");

/** Whether row `m` is the latest of its webhook: one of a customer may be in an incident several times. */
const IS_LATEST = `not exists (
  select from incident_webhooks n where n.incident_id = m.incident_id and n.webhook_id = m.webhook_id and n.since > m.since)`;

const upTo = (rowsOf: string) => `(select count(*) from (${rowsOf} limit ${MAX_COUNTED}) c)`;
const opened = (table: "queue" | "retries") =>
  upTo(`select from ${table} t where t.webhook_id = m.webhook_id`);
const attemptsIn = (from: number, to: number) => `(
  select coalesce(sum(${failedAttempts("r")}), 0) from rollup_minutes r where r.webhook_id = m.webhook_id
    and r.start > date_trunc('minute', now()) - interval '${from} minutes'
    and r.start <= date_trunc('minute', now()) - interval '${to} minutes')`;

/** Counts of webhook `m` of an incident: current ones while it fails, afterwards those that were counted last. */
const COUNTS = `cross join lateral (
  select ${opened("queue")} + ${opened("retries")} as waiting,
    (select min(due) from retries t where t.webhook_id = m.webhook_id) as next_attempt,
    ${upTo(`select from deliveries d where d.webhook_id = m.webhook_id and d.id >= m.first_delivery and d.outcome = 'failed'
      and d.finished >= m.since`)} as failed, 0 as recovered,
    ${attemptsIn(TREND_MIN, 0)} as attempts, ${attemptsIn(2 * TREND_MIN, TREND_MIN)} as attempts_before
  where m.ended is null and not m.warning
  union all select 0, null, m.failed, m.recovered, 0, 0 where m.ended is not null or m.warning
) c`;

async function read(db: Db, scope: Scope, condition: string, bindings: Bindings): Promise<IncidentRow[]> {
  const inScope = webhookIn(scope, "w");
  const sum = (column: string) => `coalesce(sum(c.${column}), 0)::bigint`;
  return rows<IncidentRow>(
    db,
    `select i.id, i.cause, i.subject, i.warning, i.opened as since, i.closed as ended,
        (extract(epoch from i.closed) * 1000000)::bigint as "endedUs", i.webhooks::bigint, i.failing::bigint as "failingWebhooks", s.*
      from (select i.* from ${incidentsIn(scope)} i where ${condition}) i cross join lateral (
        select count(distinct m.webhook_id) as "measuredWebhooks", count(distinct m.customer) as customers, ${sum("waiting")} as waiting,
          min(c.next_attempt) as "nextAttempt", ${sum("failed")} as failed, ${sum("recovered")} as recovered,
          ${sum("attempts")} as "failedAttempts", ${sum("attempts_before")} as "failedAttemptsBefore",
          coalesce(min(m.error) filter (where m.ended is null), min(m.error), '') as "lastError"
        from (
          select m.* from incident_webhooks m join webhooks w on w.id = m.webhook_id
          where m.${idIn(scope)} = i.id and ${inScope.sql} limit ${MAX_MEASURED}
        ) m ${COUNTS}
      ) s order by ${END} desc, i.id desc`,
    { ...bindings, ...inScope.bindings },
  );
}

/** The scope's incidents: open ones first, then past ones, the latest first. */
export function listIncidents(
  db: Db,
  scope: Scope,
  { open, webhookId, subject }: IncidentFilter,
  { after, limit }: { after: IncidentPosition | null; limit: number },
): Promise<IncidentRow[]> {
  const conditions = ["true"];
  if (open !== undefined) conditions.push(`i.closed is ${open ? "" : "not "}null`);
  if (webhookId !== undefined)
    conditions.push(
      `i.id in (select m.${idIn(scope)} from incident_webhooks m join webhooks w on w.id = m.webhook_id
        where m.webhook_id = :webhookId::bigint and ${webhookIn(scope, "w").sql})`,
    );
  if (subject !== undefined) conditions.push("i.subject = :subject::text");
  if (after)
    conditions.push(
      `(${END}, i.id) < (coalesce('epoch'::timestamptz + :endedUs::bigint * interval '1 microsecond', 'infinity'), :afterId::uuid)`,
    );
  return read(db, scope, `${conditions.join(" and ")} order by ${END} desc, i.id desc limit :limit::int`, {
    webhookId: webhookId ?? null,
    subject: subject ?? null,
    endedUs: after?.endedUs ?? null,
    afterId: after?.id ?? null,
    limit,
  });
}

/** The scope's incident with this id; undefined if it has none. The operator finds incidents also by the ids that customers see. */
export async function getIncident(db: Db, scope: Scope, id: string): Promise<IncidentRow | undefined> {
  const known =
    "coalesce((select m.incident_id from incident_webhooks m where m.shown_id = :id::uuid limit 1), :id::uuid)";
  return (await read(db, scope, `i.id = ${scope === "everything" ? known : ":id::uuid"}`, { id }))[0];
}

/** The webhooks of an incident that are in the scope, by id. */
export function listIncidentWebhooks(
  db: Db,
  scope: Scope,
  id: string,
  { after, limit }: { after: bigint | null; limit: number },
): Promise<IncidentWebhookRow[]> {
  const inScope = webhookIn(scope, "w");
  return rows<IncidentWebhookRow>(
    db,
    `select m.webhook_id as id, m.name, m.process, m.url, m.customer, m.since, m.ended, m.error as "lastError", c.waiting::bigint,
        c.next_attempt as "nextAttempt", c.failed::bigint, c.recovered::bigint
      from (
        select m.*, w.name, w.process, w.url from incident_webhooks m join webhooks w on w.id = m.webhook_id
        where m.${idIn(scope)} = :id::uuid and m.webhook_id > coalesce(:after::bigint, 0) and ${inScope.sql}
          ${scope === "everything" ? `and ${IS_LATEST}` : ""}
        order by m.webhook_id limit :limit::int
      ) m ${COUNTS} order by m.webhook_id`,
    { ...inScope.bindings, id, after, limit },
  );
}

/** The open incident of a webhook. */
export interface OpenIncident {
  id: string;
  cause: string;
  /** Since when the webhook has failed with this cause. */
  since: Date;
}

/** The open incidents of webhooks in the scope, by webhook. */
export async function openIncidentsOf(
  db: Db,
  scope: Scope,
  webhookIds: Iterable<bigint>,
): Promise<Map<bigint, OpenIncident>> {
  const ids = plainArray([...new Set(webhookIds)]);
  const found = await rows<OpenIncident & { webhookId: bigint }>(
    db,
    `select m.webhook_id as "webhookId", m.${idIn(scope)} as id, i.cause, m.since from incident_webhooks m join incidents i on i.id = m.incident_id
      where m.webhook_id = any(:ids::bigint[]) and m.ended is null and not m.warning`,
    { ids },
  );
  return new Map(found.map(({ webhookId, ...incident }) => [webhookId, incident]));
}
