import { type Bindings, count, type Db, rows } from "../lib/pg/index.ts";
import { isInRangeOf } from "../schema/index.ts";
import { distinctOf, isFree, ofWebhook } from "./conditions.ts";
import { CHANGE, deltaOf } from "./rollup-deltas.ts";

/**
 * Moves deliveries to the log without another attempt.
 *
 * @param choose selects the rows of a table, as `select ctid …`, locked
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
  const [ended] = await rows<{ n: number }>(
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
  return ended?.n ?? 0;
}

/** Chooses deliveries of a table by their ids, as far as the worker holds them. */
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
  // The statement skips a claimed retry that leaves its run at the same time.
  if ((await endClaimed()) < ids.length) await endClaimed();
}

/**
 * Ends claimed first attempts that the filters of their webhooks do not match. If one of them was the probe of a circuit
 * breaker, the next look chooses another. A probe that the worker no longer holds stays: another worker may send it.
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
 * Cancels deliveries of deleted webhooks, at most `limit` per table. Claimed ones are skipped: the result of their
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

/** Fails unclaimed open deliveries with an id smaller than `before`, at most `limit` per table. */
export async function endExpired(db: Db, before: string, limit: number): Promise<number> {
  const choose = (table: string) =>
    `select ctid from ${table} q where id < :before::uuid and ${isFree("q")} order by id limit :limit::int
      for update skip locked`;
  return end(db, choose, "failed", "expired", { before, limit });
}

/**
 * Fails the latest unclaimed deliveries of webhooks with more than `max` pending first attempts, so that the oldest
 * `max` remain; at most `limit`. Leaves out the test delivery of a paused webhook. Visits every webhook with pending
 * deliveries, and at most `max` index entries of each.
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
