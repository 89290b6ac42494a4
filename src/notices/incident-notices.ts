import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { WebhookProcess } from "../../gen/webhook/v1/event_pb.ts";
import { IncidentClosedSchema, IncidentOpenedSchema } from "../../gen/webhook/v1/notice_pb.ts";
import { FIRST_NOTICE, OWN_USERS, processName } from "../contract/catalogue.ts";
import { present } from "../contract/present.ts";
import { causeIn, causeOfLatest, type IncidentChange } from "../incidents/index.ts";
import { type Db, plainArray, rows, textArray } from "../lib/pg/index.ts";
import { announceQueued } from "../queue/index.ts";
import { publishStatement, write } from "./notices.ts";

const { INCIDENT_OPENED, INCIDENT_CLOSED } = WebhookProcess;

/** An incident of which the subscribers with one scope get a notice. */
interface NoticedIncident {
  /** The id under which the subscribers see the incident. */
  id: string;
  process: WebhookProcess;
  /** The customer of the subscribers, whose event the notice is. Null for the operator and its apps. */
  customer: string | null;
  cause: string;
  subject: string;
  error: string;
  since: Date;
  ended: Date | null;
  webhooks: number;
  /** The ids of the webhooks that receive it. */
  recipients: string[];
  now: Date;
}

/**
 * Publishes notices of incidents that were opened or have ended, for each subscriber by the webhooks that its key can access. Those that
 * concern only webhooks of notices cause none. Requires the transaction that stores the changes.
 */
export async function noticeIncidents(trx: Db, changes: readonly IncidentChange[]): Promise<void> {
  if (changes.length === 0) return;
  const noticed = await rows<NoticedIncident>(trx, NOTICED, {
    ids: plainArray(changes.map(({ id }) => id)),
    shownIds: plainArray(changes.map(({ shownId }) => shownId)),
    webhookIds: plainArray(changes.map(({ webhookId }) => webhookId)),
    processes: plainArray(
      changes.map(({ change }) => (change === "joined" ? INCIDENT_OPENED : INCIDENT_CLOSED)),
    ),
  });
  if (noticed.length === 0) return;
  await rows(trx, PUBLISH, {
    keys: textArray(noticed.map(keyOf)),
    noticeProcesses: plainArray(noticed.map(({ process }) => process)),
    users: textArray(noticed.map(({ customer }) => customer ?? OWN_USERS.notices)),
    occurred: plainArray(noticed.map((each) => occurredOf(each).toISOString())),
    payloads: textArray(noticed.map(payloadOf)),
    places: plainArray(noticed.flatMap(({ recipients }, n) => recipients.map(() => n + 1))),
    webhookIds: plainArray(noticed.flatMap(({ recipients }) => recipients)),
  });
  await announceQueued(trx);
}

const occurredOf = ({ ended, now }: NoticedIncident) => ended ?? now;

const keyOf = (incident: NoticedIncident) =>
  [
    processName(incident.process),
    incident.id,
    occurredOf(incident).toISOString(),
    incident.recipients[0],
  ].join("/");

function payloadOf({ id, process, cause, subject, error, since, ended, webhooks }: NoticedIncident): string {
  const { summary, remedy } = causeIn(subject, { ...causeOfLatest(error), code: cause });
  const fields = {
    incidentId: id,
    cause,
    summary,
    remedy,
    subject,
    since: timestampFromDate(since),
    webhooks: BigInt(webhooks),
  };
  return process === INCIDENT_OPENED
    ? write(IncidentOpenedSchema, fields)
    : write(IncidentClosedSchema, present({ ...fields, ended: ended && timestampFromDate(ended) }));
}

/** Whether webhook `w` may be known to subscribers `s`, as `Scope` says, and is none of notices. */
const IS_KNOWN = `w.process < ${FIRST_NOTICE} and (s.customer is null and s.installed_app_id is null
  or w.customer is not distinct from s.customer
    and (s.installed_app_id is null or w.installed_app_id = s.installed_app_id)
    and (s.processes = '{}' or w.process = any(s.processes)))`;

/**
 * Subscribers with the same scope get one notice: when the first of the webhooks that their keys can access begins to fail, and when the last
 * one does not fail any more. Customers are told of incidents of their own (`shown_id`).
 */
const NOTICED = `
  with subscriber as (
    select r.process, r.customer, r.installed_app_id,
      case when r.customer is null and r.installed_app_id is null then '{}' else k.allowed_processes end as processes,
      array_agg(r.id::text order by r.id) as recipients
    from webhooks r join api_keys k on k.id = r.api_key_id
    where r.process = any(:processes::int[]) and r.deleted is null group by 1, 2, 3, 4
  ),
  changed as materialized (
    select * from unnest(:ids::uuid[], :shownIds::uuid[], :webhookIds::bigint[], :processes::int[])
      as c(id, shown_id, webhook_id, process)
  ),
  told as materialized (
    select distinct s.*, c.id as incident_id, case when s.customer is null then c.id else c.shown_id end as id
    from changed c join webhooks w on w.id = c.webhook_id join subscriber s on s.process = c.process and ${IS_KNOWN}
  )
  select s.id, s.process, s.customer, i.cause, i.subject, m.error, m.since, case when m.failing = 0 then m.ended end as ended, m.webhooks,
    s.recipients, now() as now
  from told s join incidents i on i.id = s.incident_id cross join lateral (
      select count(distinct m.webhook_id)::int as webhooks, min(m.since) as since, min(m.error) as error, max(m.ended) as ended,
        count(*) filter (where m.ended is null) as failing,
        count(*) filter (where m.ended is null and (m.shown_id, m.webhook_id) in (
          select c.shown_id, c.webhook_id from changed c where c.process = ${INCIDENT_OPENED})) as joined
      from (
        select * from incident_webhooks m where s.customer is null and m.incident_id = s.incident_id
        union all select * from incident_webhooks m where s.customer is not null and m.shown_id = s.id
      ) m join webhooks w on w.id = m.webhook_id
      where ${IS_KNOWN}
    ) m
  where m.failing = case when s.process = ${INCIDENT_OPENED} then m.joined else 0 end`;

const PUBLISH = publishStatement(
  `unnest(:keys::text[], :noticeProcesses::int[], :users::text[], :occurred::timestamptz[], :payloads::text[])
      with ordinality as g(key, notice_process, user_id, occurred, payload, place)`,
  "join unnest(:places::int[], :webhookIds::bigint[]) as r(place, webhook_id) using (place)",
);
