import { type Bindings, column, count, type Db } from "../lib/pg/index.ts";
import { isInRangeOf } from "../schema/index.ts";
import { distinctOf, isFree, ofWebhook } from "./conditions.ts";
import { CHANGE, deltaOf } from "./rollup-deltas.ts";

/**
 * Moves deliveries to the log without another attempt.
 *
 * @param choose returns SQL `select ctid …` that selects and locks the rows of a table to move
 * @returns the number of deliveries moved
 */
async function end(
  db: Db,
  choose: (table: "queue" | "retries") => string,
  outcome: "failed" | "cancelled" | "filtered",
  reason: string,
  bindings: Bindings,
  tables: readonly ("queue" | "retries")[] = ["queue", "retries"],
): Promise<number> {
  const gone = tables.map(
    (table) => `
      ${table}_chosen as materialized (${choose(table)}),
      ${table}_gone as (
        delete from ${table} where ctid = any(array(select ctid from ${table}_chosen))
        returning id, event_id, webhook_id, run_id, attempts, ${table === "queue" ? "attempts as round_start" : "round_start"}
      )`,
  );
  const [ended = 0] = await column<number>(
    db,
    `with ${gone.join(",")},
      gone as (${tables.map((table) => `select * from ${table}_gone`).join(" union all ")}),
      logged as (
        insert into deliveries (id, event_id, webhook_id, run_id, outcome, attempts, round_start, finished, reason)
        select id, event_id, webhook_id, run_id, :outcome::outcome, attempts, round_start, now(), :reason from gone
      ),
      ${deltaOf(`select id, webhook_id, :change::smallint as change, -1 as duration_ms from gone`)}
      select count(*)::int as n from gone`,
    { ...bindings, outcome, reason, change: CHANGE[outcome] },
  );
  return ended;
}

/** SQL that selects and locks the rows of a table with `:ids` that the worker has claimed. */
const claimed = (table: "queue" | "retries") =>
  `select ctid from ${table} where id = any(:ids::uuid[]) and claimed_by = :workerId::int for update`;

/** Fails claimed deliveries that were claimed too often without a result, because the worker crashed each time. */
export async function endInterrupted(
  db: Db,
  table: "queue" | "retries",
  workerId: number,
  ids: readonly string[],
): Promise<void> {
  const endClaimed = () => end(db, claimed, "failed", "interrupted", { ids, workerId }, [table]);
  // The statement misses a retry that `leavePaused` or `settleGroups` changes concurrently. A second one finds it.
  if ((await endClaimed()) < ids.length) await endClaimed();
}

/**
 * Ends claimed deliveries in `queue` that the filters of their webhooks do not match. If one of them was the probe of a circuit breaker,
 * clears the probe and makes the breaker due, so that `decideBreakers` chooses another one. A probe whose claim the worker has lost
 * remains the probe: another worker may send it.
 */
export async function endFiltered(
  db: Db,
  workerId: number,
  deliveries: readonly { id: string; webhook: { id: bigint } }[],
): Promise<void> {
  const ids = deliveries.map(({ id }) => id);
  await end(db, claimed, "filtered", "filter not matched", { ids, workerId }, ["queue"]);
  await count(
    db,
    `with let_go as (
        update webhooks w set test_delivery = null, probe_attempts = null
        where w.id = any(:webhookIds::bigint[]) and w.test_delivery = any(:ids::uuid[])
          and exists (select from deliveries d where d.id = w.test_delivery and d.outcome = 'filtered') returning w.id
      )
      update webhook_breakers b set due = now() from let_go where b.webhook_id = let_go.id`,
    { ids, webhookIds: [...new Set(deliveries.map(({ webhook }) => webhook.id))] },
  );
}

/**
 * Cancels open deliveries of deleted webhooks, at most `limit` per table. Leaves out claimed ones: the result of their
 * attempt ends them.
 */
export function cancelOfWebhooks(db: Db, webhookIds: readonly bigint[], limit: number): Promise<number> {
  const choose = (table: string) => `
    select t.ctid from unnest(:webhookIds::bigint[]) w(id) cross join lateral (
      select ctid from ${table} q where q.webhook_id = w.id and ${isFree("q")} limit :limit::int for update skip locked
    ) t limit :limit::int`;
  return end(db, choose, "cancelled", "webhook deleted", { webhookIds, limit });
}

/** Cancels unclaimed open deliveries of events whose payload was erased. Requires a transaction. */
export async function cancelOfErased(trx: Db, eventIds: readonly string[]): Promise<number> {
  const choose = (table: string) => `
    select t.ctid from unnest(:eventIds::uuid[]) e(id) cross join lateral (
      select ctid from ${table} q where ${isInRangeOf("q.id", "e.id")} and q.event_id = e.id and ${isFree("q")}
      for update skip locked
    ) t`;
  return end(trx, choose, "cancelled", "payload erased", { eventIds });
}

/** Fails unclaimed open deliveries with an id smaller than `before`, which are older: ids are UUIDv7. At most `limit` per table. */
export async function endExpired(db: Db, before: string, limit: number): Promise<number> {
  const choose = (table: string) =>
    `select ctid from ${table} q where id < :before::uuid and ${isFree("q")} order by id limit :limit::int
      for update skip locked`;
  return end(db, choose, "failed", "expired", { before, limit });
}

/**
 * Fails the newest unclaimed deliveries in `queue` of webhooks with more than `max` rows there, so that the oldest `max` remain; at most
 * `limit`. Leaves out `webhooks.test_delivery`. To find the first delivery beyond `max`, reads up to `max` index entries of each webhook
 * with rows in `queue`.
 */
export async function endBeyond(db: Db, max: number, limit: number): Promise<number> {
  const choose = () => `
    with recursive ${distinctOf("waiting", "webhook_id", "queue", {})}
    select t.ctid from waiting w
      cross join lateral (
        select id from queue q where ${ofWebhook("q", "w.webhook_id")} order by q.webhook_id, q.id offset :max::int limit 1
      ) first_beyond
      cross join lateral (
        select ctid from queue q where ${ofWebhook("q", "w.webhook_id", "first_beyond.id")} and ${isFree("q")}
          and q.id is distinct from (select h.test_delivery from webhooks h where h.id = w.webhook_id)
        order by q.webhook_id desc, q.id desc limit :limit::int for update skip locked
      ) t limit :limit::int`;
  return end(db, choose, "failed", "queue full", { max, limit }, ["queue"]);
}

/**
 * As `endBeyond`, for customers with a quota: of the rows in `queue` of all webhooks of a customer, the oldest remain. Reads nothing but
 * an empty index if no customer has a quota; otherwise, of each webhook with rows in `queue` and such a customer, as many index entries
 * as the quota.
 */
export async function endBeyondQuotas(db: Db, limit: number): Promise<number> {
  // Ordered, so that the planner takes the index of quotas.
  const where = "(select id from customers where pending_quota is not null order by id limit 1) is not null";
  const choose = () => `
    with recursive ${distinctOf("waiting", "webhook_id", "queue", { where })},
      limited as materialized (
        select w.id, w.customer, w.test_delivery, c.pending_quota from waiting
          join webhooks w on w.id = waiting.webhook_id join customers c on c.id = w.customer
        where c.pending_quota is not null
      ),
      beyond as materialized (
        select each.customer, (
            select q.id from limited l cross join lateral (
              select id from queue q where ${ofWebhook("q", "l.id")} order by q.webhook_id, q.id limit each.pending_quota + 1
            ) q where l.customer = each.customer order by q.id offset each.pending_quota limit 1
          ) as id
        from (select distinct customer, pending_quota from limited) each
      )
    select t.ctid from beyond b join limited l on l.customer = b.customer
      cross join lateral (
        select ctid from queue q where ${ofWebhook("q", "l.id", "b.id")} and ${isFree("q")}
          and q.id is distinct from l.test_delivery
        order by q.webhook_id desc, q.id desc limit :limit::int for update skip locked
      ) t where b.id is not null limit :limit::int`;
  return end(db, choose, "failed", "queue full", { limit }, ["queue"]);
}
