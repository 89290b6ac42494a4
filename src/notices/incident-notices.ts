import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { WebhookProcess } from "../../gen/webhook/v1/event_pb.ts";
import { IncidentClosedSchema, IncidentOpenedSchema } from "../../gen/webhook/v1/notice_pb.ts";
import { FIRST_NOTICE, processName } from "../contract/catalogue.ts";
import { present } from "../contract/present.ts";
import { causeOfLatest, type IncidentChange } from "../incidents/index.ts";
import { type Db, plainArray, rows, textArray } from "../lib/pg/index.ts";
import { announceQueued } from "../queue/index.ts";
import { NO_KEY, USER_ID, write } from "./notices.ts";

const { INCIDENT_OPENED, INCIDENT_CLOSED } = WebhookProcess;

/** An incident as the subscribers with one scope are told of it. */
interface NoticedIncident {
  id: string;
  process: WebhookProcess;
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
 * Publishes notices of incidents that were opened or have ended. Those that concern only webhooks of notices cause none. Requires the
 * transaction that stores the changes.
 */
export async function noticeIncidents(trx: Db, changes: readonly IncidentChange[]): Promise<void> {
  if (changes.length === 0) return;
  const noticed = await rows<NoticedIncident>(trx, NOTICED, {
    ids: plainArray(changes.map(({ id }) => id)),
    processes: plainArray(
      changes.map(({ change }) => (change === "opened" ? INCIDENT_OPENED : INCIDENT_CLOSED)),
    ),
  });
  if (noticed.length === 0) return;
  await rows(trx, PUBLISH, {
    keys: textArray(noticed.map(keyOf)),
    noticeProcesses: plainArray(noticed.map(({ process }) => process)),
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
  const { summary, remedy } = causeOfLatest(error);
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

/** Subscribers with the same scope get one notice. What it counts is what their keys can access (`Scope`). */
const NOTICED = `
  with subscriber as (
    select r.process, r.customer, r.installed_app_id,
      case when r.customer is null and r.installed_app_id is null then '{}' else k.allowed_processes end as processes,
      array_agg(r.id::text order by r.id) as recipients
    from webhooks r join api_keys k on k.id = r.api_key_id
    where r.process = any(:processes::int[]) and r.deleted is null group by 1, 2, 3, 4
  )
  select i.id, s.process, i.cause, i.subject, m.error, m.since, i.closed as ended, m.webhooks, s.recipients, now() as now
  from unnest(:ids::uuid[], :processes::int[]) as n(id, process)
    join incidents i on i.id = n.id join subscriber s on s.process = n.process cross join lateral (
      select count(*)::int as webhooks, min(m.since) as since, min(m.error) as error
      from incident_webhooks m join webhooks w on w.id = m.webhook_id
      where m.incident_id = i.id and w.process < ${FIRST_NOTICE}
        and (s.customer is null and s.installed_app_id is null
          or w.customer is not distinct from s.customer
            and (s.installed_app_id is null or w.installed_app_id = s.installed_app_id)
            and (s.processes = '{}' or w.process = any(s.processes)))
    ) m
  where m.webhooks > 0`;

const PUBLISH = `
  with given as materialized (
    select new_event_id() as id, g.* from unnest(:keys::text[], :noticeProcesses::int[], :occurred::timestamptz[], :payloads::text[])
      with ordinality as g(key, process, occurred, payload, place)
  ),
  fresh as (
    insert into idempotency_keys (api_key_id, idempotency_key, event_id, request_sha256)
    select '${NO_KEY}', key, id, sha256(convert_to(payload, 'UTF8')) from given order by key collate "C"
    on conflict do nothing returning event_id
  ),
  recipient as materialized (
    select g.id as event_id, r.webhook_id
    from given g join unnest(:places::int[], :webhookIds::bigint[]) as r(place, webhook_id) using (place)
    where g.id in (select event_id from fresh)
  ),
  stored as (
    insert into events (id, api_key_id, idempotency_key, process, user_id, occurred, recipients, payload)
    select g.id, '${NO_KEY}', g.key, g.process, '${USER_ID}', g.occurred,
      (select count(*) from recipient where event_id = g.id), g.payload
    from given g where g.id in (select event_id from fresh) order by g.id
  )
  insert into queue (id, event_id, webhook_id)
  select new_delivery_id(event_id), event_id, webhook_id from recipient order by event_id, webhook_id`;
