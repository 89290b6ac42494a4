import { create, type DescMessage, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { WebhookProcess } from "../../gen/webhook/v1/event_pb.ts";
import {
  DeliveryFailedSchema,
  type NoticeWebhookSchema,
  WebhookDisabledSchema,
  WebhookFailingSchema,
  WebhookFilterStoppedSchema,
  WebhookRecoveredSchema,
} from "../../gen/webhook/v1/notice_pb.ts";
import type { Owned } from "../calls/index.ts";
import { FIRST_NOTICE, OWN_USERS, processName } from "../contract/catalogue.ts";
import { jsonWriter } from "../contract/json/writer.ts";
import { present, timestampOf } from "../contract/present.ts";
import type { HealthChange } from "../health/index.ts";
import { type Db, plainArray, rows, textArray } from "../lib/pg/index.ts";
import { announceQueued } from "../queue/index.ts";
import { NIL_ID } from "../schema/index.ts";
import { HEALTH_NUMBERS, type Health } from "../webhooks/index.ts";

/** Stands for the API key of notices, which no caller publishes. */
const NO_KEY = NIL_ID;
/** The maximum number of notices published by one statement. */
const MAX_PER_STATEMENT = 500;

/** A notice to publish. */
interface Notice {
  process: WebhookProcess;
  /** Identifies the change for ever: a second notice with this key is not published. */
  key: string;
  /** The webhook that the notice is about. */
  about: AboutWebhook;
  userId: string;
  occurred: Date;
  payload: string;
}

/** The webhook that a notice is about. */
interface AboutWebhook extends Owned {
  webhookId: bigint;
  name: string | null;
  process: number;
  url: string;
  targetUrl: string;
}

const ABOUT = `w.id as "webhookId", w.name, w.process, w.url, w.target_url as "targetUrl",
  w.customer, w.installed_app_id as "installedAppId"`;

/**
 * SQL for the ids of the webhooks that receive a notice about another webhook: what their keys can access (`Scope`). Those of the
 * operator without an app receive all notices. Others receive notices about webhooks of the same customer or the operator, of the same
 * app if they have one, whose event type their key may subscribe to. Each half is read by an index of its own: any number of customers
 * may subscribe.
 *
 * @param process the event type of the notice
 * @param about the table with the customer, the app and the process of the other webhook
 */
function receivers(process: string, about: string): string {
  const mayKnow = `exists (select from api_keys k where k.id = r.api_key_id
    and (k.allowed_processes = '{}' or ${about}.process = any(k.allowed_processes)))`;
  const isOfApp = `r.installed_app_id = ${about}.installed_app_id`;
  return `(
    select r.id from webhooks r where r.process = ${process} and r.deleted is null and r.customer is null
      and (r.installed_app_id is null or ${about}.customer is null and ${isOfApp} and ${mayKnow})
    union all
    select r.id from webhooks r where r.process = ${process} and r.deleted is null and r.customer = ${about}.customer
      and (r.installed_app_id is null or ${isOfApp}) and ${mayKnow})`;
}

/** Whether a notice about webhook `w` is to be published: notices cause no notices. @param process its event type */
const isNoticed = (process: string) => `w.process < ${FIRST_NOTICE} and exists ${receivers(process, "w")}`;

/** Publishes notices of webhooks that began to fail or have recovered. Requires the transaction that stores the changes. */
export async function noticeHealth(trx: Db, changes: readonly HealthChange[]): Promise<void> {
  const crossed = changes.filter(({ was, health }) => (was === "failing") !== (health === "failing"));
  if (crossed.length === 0) return;
  const changeOf = new Map(crossed.map((change) => [change.webhookId, change]));
  const processOf = ({ health }: HealthChange) =>
    health === "failing" ? WebhookProcess.WEBHOOK_FAILING : WebhookProcess.WEBHOOK_RECOVERED;
  const noticed = await rows<AboutWebhook & { now: Date }>(
    trx,
    `select ${ABOUT}, now() as now
      from unnest(:ids::bigint[], :processes::int[]) as n(id, process) join webhooks w on w.id = n.id
      where ${isNoticed("n.process")}`,
    {
      ids: plainArray(crossed.map(({ webhookId }) => webhookId)),
      processes: plainArray(crossed.map(processOf)),
    },
  );
  const notices = noticed.map(({ now, ...about }) => {
    const change = changeOf.get(about.webhookId) as HealthChange;
    const process = processOf(change);
    const fields = {
      webhook: webhookMessage(about),
      healthBefore: HEALTH_NUMBERS[change.was],
      health: HEALTH_NUMBERS[change.health],
      since: timestampFromDate(change.since),
      ...present({ lastError: change.lastError }),
    };
    const payload =
      change.health === "failing"
        ? write(WebhookFailingSchema, fields)
        : write(WebhookRecoveredSchema, { ...fields, failingSince: timestampFromDate(change.wasSince) });
    return noticeOf(process, about, now, payload);
  });
  await publish(trx, notices);
}

/** Publishes notices of webhooks that their circuit breaker has disabled. Requires the transaction that stores it. */
export async function noticeDisabled(trx: Db, webhookIds: readonly bigint[]): Promise<void> {
  if (webhookIds.length === 0) return;
  const process = WebhookProcess.WEBHOOK_DISABLED;
  const noticed = await rows<
    AboutWebhook & {
      health: Health;
      lastError: string | null;
      reason: string;
      since: Date;
      failingSince: Date | null;
    }
  >(
    trx,
    `select ${ABOUT}, coalesce(h.health, 'healthy') as health, h.last_error as "lastError", b.reason, b.since,
        b.failing_since as "failingSince"
      from webhooks w join webhook_breakers b on b.webhook_id = w.id left join webhook_health h on h.webhook_id = w.id
      where w.id = any(:ids::bigint[]) and ${isNoticed(String(process))}`,
    { ids: plainArray(webhookIds) },
  );
  const notices = noticed.map(({ health, lastError, reason, since, failingSince, ...about }) => {
    const payload = write(WebhookDisabledSchema, {
      webhook: webhookMessage(about),
      health: HEALTH_NUMBERS[health],
      reason,
      since: timestampFromDate(since),
      ...present({ failingSince: timestampOf(failingSince), lastError }),
    });
    return noticeOf(process, about, since, payload);
  });
  await publish(trx, notices);
}

/** Publishes the notice of a webhook whose filter was switched off. Requires the transaction that stores it. */
export async function noticeFilterStopped(trx: Db, webhookId: bigint): Promise<void> {
  const process = WebhookProcess.WEBHOOK_FILTER_STOPPED;
  const noticed = await rows<AboutWebhook & { filter: string; since: Date }>(
    trx,
    `select ${ABOUT}, w.filter, w.filter_stopped as since from webhooks w
      where w.id = :webhookId::bigint and ${isNoticed(String(process))}`,
    { webhookId },
  );
  const notices = noticed.map(({ filter, since, ...about }) => {
    const fields = { webhook: webhookMessage(about), filter, since: timestampFromDate(since) };
    return noticeOf(process, about, since, write(WebhookFilterStoppedSchema, fields));
  });
  await publish(trx, notices);
}

/** A failed delivery. */
interface FailedDelivery extends AboutWebhook {
  id: string;
  eventId: string;
  eventType: number;
  userId: string;
  attempts: number;
  finished: Date;
  reason: string | null;
  lastError: string | null;
}

/**
 * Publishes notices of failed deliveries, test deliveries excepted. A delivery that was sent again in the meantime has not
 * failed. Requires the transaction that takes the ids from the log of changes.
 */
export async function noticeFailed(trx: Db, deliveryIds: readonly string[]): Promise<void> {
  const process = WebhookProcess.DELIVERY_FAILED;
  for (let from = 0; from < deliveryIds.length; from += MAX_PER_STATEMENT) {
    const failed = await rows<FailedDelivery>(
      trx,
      `select ${ABOUT}, d.id, e.id as "eventId", e.process as "eventType", e.user_id as "userId", d.attempts, d.finished,
          d.reason, nullif(concat_ws(': ', 'HTTP status ' || d.status, d.error), '') as "lastError"
        from unnest(:ids::uuid[]) with ordinality as n(id, place) cross join lateral (
          select * from deliveries d where d.id = n.id and d.outcome = 'failed' limit 1
        ) d cross join lateral (
          select * from events e where e.id = d.event_id limit 1
        ) e join webhooks w on w.id = d.webhook_id
        where not e.test and ${isNoticed(String(process))}
        order by n.place`,
      { ids: plainArray(deliveryIds.slice(from, from + MAX_PER_STATEMENT)) },
    );
    await publish(trx, failed.map(failedNotice));
  }
}

function failedNotice(failed: FailedDelivery): Notice {
  const { id, eventId, eventType, userId, attempts, finished, reason, lastError, ...about } = failed;
  const payload = write(DeliveryFailedSchema, {
    webhook: webhookMessage(about),
    deliveryId: id,
    eventId,
    eventType: processName(eventType),
    attempts,
    failedAt: timestampFromDate(finished),
    ...present({ reason, lastError }),
  });
  return noticeOf(WebhookProcess.DELIVERY_FAILED, about, finished, payload, { id, userId });
}

/**
 * Creates a notice. The last parameter is the id and the user of its subject, by default the webhook. A notice about a webhook of a
 * customer is an event of that customer.
 */
function noticeOf(
  process: WebhookProcess,
  about: AboutWebhook,
  occurred: Date,
  payload: string,
  { id, userId }: { id: string; userId: string } = { id: String(about.webhookId), userId: OWN_USERS.notices },
): Notice {
  const key = `${processName(process)}/${id}/${occurred.toISOString()}`;
  return { process, key, about, userId: about.customer ?? userId, occurred, payload };
}

/** Stores notices as events and queues them for their webhooks. */
async function publish(trx: Db, notices: readonly Notice[]): Promise<void> {
  if (notices.length === 0) return;
  for (let from = 0; from < notices.length; from += MAX_PER_STATEMENT) {
    const some = notices.slice(from, from + MAX_PER_STATEMENT);
    await rows(trx, PUBLISH, {
      keys: textArray(some.map(({ key }) => key)),
      noticeProcesses: plainArray(some.map(({ process }) => process)),
      customers: textArray(some.map(({ about }) => about.customer)),
      apps: plainArray(some.map(({ about }) => about.installedAppId)),
      processes: plainArray(some.map(({ about }) => about.process)),
      userIds: textArray(some.map(({ userId }) => userId)),
      occurred: plainArray(some.map(({ occurred }) => occurred.toISOString())),
      payloads: textArray(some.map(({ payload }) => payload)),
    });
  }
  // Sent when the transaction is committed.
  await announceQueued(trx);
}

/**
 * SQL that stores notices as events of no key, and queues them for their recipients. A notice whose key was used before is left out.
 *
 * @param given SQL after `from` for the notices: key, notice_process, user_id, occurred, payload, and what `recipients` needs
 * @param recipients SQL after `from given g` for the recipients of each notice, in `r.webhook_id`
 */
export const publishStatement = (given: string, recipients: string) => `
  with given as materialized (
    select new_event_id() as id, g.* from ${given}
  ),
  fresh as (
    insert into idempotency_keys (api_key_id, idempotency_key, event_id, request_sha256)
    select '${NO_KEY}', key, id, sha256(convert_to(payload, 'UTF8')) from given order by key collate "C"
    on conflict do nothing returning event_id
  ),
  recipient as materialized (
    select g.id as event_id, r.webhook_id from given g ${recipients}
    where g.id in (select event_id from fresh)
  ),
  stored as (
    insert into events (id, api_key_id, idempotency_key, process, user_id, occurred, recipients, payload)
    select g.id, '${NO_KEY}', g.key, g.notice_process, g.user_id, g.occurred,
      (select count(*) from recipient where event_id = g.id), g.payload
    from given g where g.id in (select event_id from fresh) order by g.id
  )
  insert into queue (id, event_id, webhook_id)
  select new_delivery_id(event_id), event_id, webhook_id from recipient order by event_id, webhook_id`;

const PUBLISH = publishStatement(
  `unnest(:keys::text[], :noticeProcesses::int[], :customers::text[],
      :apps::uuid[], :processes::int[], :userIds::text[], :occurred::timestamptz[], :payloads::text[])
      as g(key, notice_process, customer, installed_app_id, process, user_id, occurred, payload)`,
  `cross join lateral ${receivers("g.notice_process", "g")} r(webhook_id)`,
);

function webhookMessage(about: AboutWebhook): MessageInitShape<typeof NoticeWebhookSchema> {
  const { webhookId: id, name, process, url, targetUrl, installedAppId } = about;
  return {
    id,
    webhookProcess: processName(process),
    url,
    host: new URL(targetUrl).host,
    ...present({ name, application: installedAppId }),
  };
}

/** Writes the payload of a notice. */
export function write<Desc extends DescMessage>(desc: Desc, fields: MessageInitShape<Desc>): string {
  return jsonWriter(desc, "payload")(create(desc, fields));
}
