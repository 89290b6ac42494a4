import { type Db, rows } from "../lib/pg/index.ts";
import { lastIdOf, NIL_ID } from "../schema/index.ts";
import { isFree, ofWebhook, pendingUpTo } from "./conditions.ts";

/** The maximum number of a webhook's retries, oldest first, among which a due one is searched. */
const MAX_SEARCHED = 10_000;

/** The deliveries of a webhook in `queue`, claimed ones included. */
export interface Waiting {
  /** Their number, at most `limit`. */
  pending: number;
  /** The number of the `oldest` ones that were queued again. */
  again: number;
  /** The age of the event of the oldest delivery after those of `after`, in seconds; null if there is none. */
  oldestS: number | null;
  /** How many more the quota of its customer allows, over all webhooks of the customer; null without a quota. */
  customerRoom: number | null;
}

/**
 * Counts the deliveries that wait for a webhook.
 *
 * @param options.oldest defaults to 0
 * @param options.after the id of an event or a delivery. Defaults to the nil UUID
 */
export async function readWaiting(
  db: Db,
  webhookId: bigint,
  { limit, oldest = 0, after = NIL_ID }: { limit: number; oldest?: number; after?: string },
): Promise<Waiting> {
  const [found] = await rows<Waiting>(
    db,
    `select ${pendingUpTo(":webhookId::bigint", ":limit::int")} as pending, (
        select count(queued)::int from (
          select q.queued from queue q where ${ofWebhook("q", ":webhookId::bigint")}
          order by q.webhook_id, q.id limit :oldest::int
        ) oldest
      ) as again, (
        select extract(epoch from now() - time_of_id(q.id))::float8 from queue q
        where ${ofWebhook("q", ":webhookId::bigint", lastIdOf(":after::uuid"))} order by q.webhook_id, q.id limit 1
      ) as "oldestS", (
        select greatest(0, c.pending_quota - (
            select count(*)::int from (
              select from webhooks o cross join lateral (
                select from queue q where ${ofWebhook("q", "o.id")} limit c.pending_quota
              ) q where o.customer = c.id and o.deleted is null limit c.pending_quota
            ) pending
          )) from webhooks w join customers c on c.id = w.customer
        where w.id = :webhookId::bigint and c.pending_quota is not null
      ) as "customerRoom"`,
    { webhookId, limit, oldest, after },
  );
  return found as Waiting;
}

/** The oldest unclaimed delivery of webhooks, pending or due for a retry, with the attempts of a retry; undefined if there is none. */
export async function findOldest(
  db: Db,
  webhookIds: readonly bigint[],
): Promise<{ id: string; webhookId: bigint; attempts: number | null } | undefined> {
  const [oldest] = await rows<{ id: string; webhookId: bigint; attempts: number | null }>(
    db,
    `select p.id, p.webhook_id as "webhookId", p.attempts from unnest(:ids::bigint[]) m(id) cross join lateral (
        (select q.id, q.webhook_id, null::smallint as attempts from queue q
          where ${ofWebhook("q", "m.id")} and ${isFree("q")} order by q.webhook_id, q.id limit 1)
        union all
        (select t.id, t.webhook_id, t.attempts from (
            select t.id, t.webhook_id, t.attempts, t.due from retries t
            where ${ofWebhook("t", "m.id")} and ${isFree("t")} order by t.webhook_id, t.id limit ${MAX_SEARCHED}
          ) t where t.due <= now() order by t.webhook_id, t.id limit 1)
      ) p order by p.id limit 1`,
    { ids: webhookIds.map(String) },
  );
  return oldest;
}
