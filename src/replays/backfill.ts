import { type Db, databaseTime, rows } from "../lib/pg/index.ts";
import { hasDelivery, TABLES } from "../log/index.ts";
import { firstIdOf } from "../schema/index.ts";
import type { RunningReplay, Taken } from "./running.ts";

/** The maximum number of events that one step reads, of all types. */
const MAX_SCANNED = 5_000;

/**
 * Queues events of a webhook's type that it has no delivery of, oldest first: those of its customer, if it has one. Test events are
 * left out; events without a payload are skipped.
 *
 * An event that is still being fanned out to the webhook is left to the fan-out. The newest events wait: a publish that began
 * before the webhook was registered may not be visible yet.
 *
 * @param after examines events with a larger id
 * @param size the maximum number of deliveries queued
 */
export async function queueMissed(
  trx: Db,
  { toId }: RunningReplay,
  webhookId: bigint,
  after: string,
  size: number,
  { retentionDays, settledMs }: { retentionDays: number; settledMs: number },
): Promise<Taken> {
  const now = (await databaseTime(trx)).getTime();
  const settledTo = firstIdOf(new Date(now - settledMs));
  const waits = settledTo < toId;
  const [taken] = await rows<Omit<Taken, "waits" | "examinedTo"> & { last: string | null }>(
    trx,
    QUEUE_MISSED,
    {
      webhookId,
      after,
      to: waits ? settledTo : toId,
      oldest: firstIdOf(new Date(now - retentionDays * 86_400_000)),
      size,
    },
  );
  const { last, ...counts } = taken as NonNullable<typeof taken>;
  if (last !== null) return { ...counts, examinedTo: last, waits: false };
  return { ...counts, examinedTo: waits ? (after > settledTo ? after : settledTo) : null, waits };
}

const HAS_DELIVERY = TABLES.map((table) => hasDelivery(table, "s.webhook_id", "s.id")).join(" or ");

/** SQL for the next events of `webhook`, of any type. */
const nextEvents = (condition: string) => `(
  select e.* from webhook w cross join lateral (
    select e.id, e.process, e.test from events e
    where ${condition} and e.id > greatest(:after::uuid, :oldest::uuid) and e.id < :to::uuid
    order by e.id limit ${MAX_SCANNED}
  ) e
)`;

/** Returns in `last` where it stopped early. Deliveries are looked up event by event, until there are enough. */
const QUEUE_MISSED = `
  with webhook as materialized (
    select w.id, w.customer, w.process, w.created_revision from webhooks w join api_keys k on k.id = w.api_key_id
    where w.id = :webhookId::bigint and w.deleted is null and k.revoked is null
  ),
  scanned as materialized (
    ${nextEvents("w.customer is null")}
    union all
    -- By the user's index: others may have any number of events meanwhile.
    ${nextEvents("e.user_id = w.customer")}
  ),
  missed as materialized (
    select s.id from (
        select s.id, w.id as webhook_id, w.customer, w.created_revision from scanned s cross join webhook w
        where s.process = w.process and not s.test order by s.id
      ) s cross join lateral (
        select where not (${HAS_DELIVERY})
          and not exists (select from fan_out f where f.event_id = s.id and s.webhook_id > f.after_webhook_id
            and s.created_revision <= case when s.customer is null then f.revision else f.customer_revision end)
        offset 0
      ) none
    order by s.id limit :size::int
  ),
  counted as (
    -- Waits for an erasure in progress, then checks the payload again.
    update events e set recipients = recipients + 1 from missed m where e.id = m.id and e.payload is not null
    returning e.id
  ),
  queued as (
    insert into queue (id, event_id, webhook_id, queued)
    select new_delivery_id(id), id, :webhookId::bigint, now() from counted returning id::text
  )
  select array(select id from queued) as queued,
    (select count(*)::int from missed) - (select count(*)::int from counted) as skipped,
    case when (select count(*) from missed) = :size::int then (select id from missed order by id desc limit 1)
      when (select count(*) from scanned) = ${MAX_SCANNED} then (select id from scanned order by id desc limit 1)
      end as last`;
