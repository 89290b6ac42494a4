import { type Db, rows } from "../lib/pg/index.ts";
import { MAX_INLINE_RECIPIENTS } from "./publish.ts";

/** The result of one fan-out step. */
export interface FanOutStep {
  /** The number of deliveries queued. */
  queued: number;
  /** The number of deliveries of this event that are not queued yet. */
  remaining: number;
  /**
   * The number of recipients that were counted at publication but do not exist; 0 unless rows were changed manually.
   */
  missing: number;
}

/** SQL for the next recipients of `event` in an instance: the operator's webhooks, or those of a customer. */
const recipientsOf = (instance: string, revision: string) => `(
  select id from webhooks
  where ${instance} and process = event.process and id > event.after_webhook_id and created_revision <= ${revision}
    and (deleted_revision is null or deleted_revision > ${revision})
  order by id limit least(event.remaining, :most::int)
)`;

/**
 * Queues the next deliveries, at most 1,000, of the oldest event with unfinished fan-out. Concurrent steps take
 * different events.
 *
 * The recipients of an event are fixed at its publication: the operator's webhooks of its type as of a revision, and those of
 * its customer as of another one. A webhook deleted since then still gets its delivery, which is then cancelled.
 *
 * @param most the maximum number of deliveries queued. Defaults to 1,000
 * @returns null if no event has unfinished fan-out, or other processes hold them all
 */
export async function fanOutStep(db: Db, most = MAX_INLINE_RECIPIENTS): Promise<FanOutStep | null> {
  const [step] = await rows<FanOutStep>(
    db,
    `with event as materialized (
        select * from fan_out order by event_id limit 1 for update skip locked
      ),
      recipient as materialized (
        select w.id from event cross join lateral (
          select * from (
            ${recipientsOf("customer is null", "event.revision")}
            union all
            ${recipientsOf("customer = event.customer", "event.customer_revision")}
          ) either order by id limit least(event.remaining, :most::int)
        ) w
      ),
      taken as (select count(*)::int as n, max(id) as last from recipient),
      queued as (
        insert into queue (id, event_id, webhook_id)
        select new_delivery_id(event.event_id), event.event_id, recipient.id from event cross join recipient
      ),
      moved as (
        update fan_out f set after_webhook_id = taken.last, remaining = f.remaining - taken.n
        from event, taken where f.event_id = event.event_id and taken.n > 0 and event.remaining > taken.n
      ),
      done as (
        delete from fan_out f using event, taken
        where f.event_id = event.event_id and (event.remaining = taken.n or taken.n = 0)
      ),
      corrected as (
        update events e set recipients = e.recipients - event.remaining
        from event, taken where e.id = event.event_id and taken.n = 0
      )
      select taken.n as queued, case when taken.n > 0 then event.remaining - taken.n else 0 end as remaining,
        case when taken.n = 0 then event.remaining else 0 end as missing
      from event cross join taken`,
    { most },
    { prepare: "fan_out" },
  );
  return step ?? null;
}
