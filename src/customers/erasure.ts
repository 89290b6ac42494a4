import { type Actor, type AuditRecord, recordChanges } from "../audit/index.ts";
import { column, count, type Db, rows, transactionWithRetry } from "../lib/pg/index.ts";
import { type CustomerRow, changeCustomer } from "./customers.ts";

/** What a step of an erasure has removed. */
export interface Removed {
  webhooks?: number;
  keys?: number;
  payloads?: number;
  /** Open deliveries that were cancelled. */
  deliveries?: number;
  /** The entries about removed webhooks and keys. */
  entries?: AuditRecord[];
}

/** Removes some rows of a customer in the transaction of a step. Removes nothing if none is left. */
export type Removal = (trx: Db, customer: string) => Promise<Removed>;

/** The state of an erasure after a step: more rows are left, it waits for older transactions, it has finished, or another process works on it. */
export type ErasureState = "more" | "waiting" | "finished" | "busy";

/**
 * Starts the erasure of a locked customer, unless one is running.
 *
 * @param actor who starts it. Entries of the audit log about the removed webhooks and keys name this actor, too
 * @returns null if one is running
 */
export async function startErasure(
  trx: Db,
  { id, erasureStarted, erasureFinished }: CustomerRow,
  actor: Actor,
): Promise<CustomerRow | null> {
  if (erasureStarted && !erasureFinished) return null;
  return changeCustomer(trx, id, {
    erasure_started: trx.fn.now(),
    erasure_finished: null,
    erasure_actor: JSON.stringify(actor),
    erasure_look: null,
    erasure_looked: null,
    erased_webhooks: 0n,
    erased_keys: 0n,
    erased_payloads: 0n,
    erased_deliveries: 0n,
  });
}

/** The customers whose erasure is running, at most 100. */
export function listErasing(db: Db): Promise<string[]> {
  return column<string>(
    db,
    "select id from customers where erasure_started is not null and erasure_finished is null order by id limit 100",
  );
}

/**
 * The time after which an erasure no longer waits for transactions that were open at the first look and have written nothing yet, in
 * seconds. Statements that publish time out earlier; backups and reports take hours.
 */
const LATEST_PUBLISH_S = 300;

/**
 * Whether all transactions have ended that were open at the first look: those with an id, and those of this database that have none yet.
 * The role of the service sees the start of its own transactions only, which are those that publish.
 */
const IS_SETTLED = `c.erasure_look is not null and pg_snapshot_xmin(pg_current_snapshot()) >= c.erasure_look
  and (c.erasure_looked < clock_timestamp() - interval '${LATEST_PUBLISH_S} seconds' or not exists (
    select from pg_stat_activity a where a.datname = current_database() and a.pid <> pg_backend_pid()
      and a.backend_type = 'client backend' and a.xact_start <= c.erasure_looked))`;

/**
 * A step of an erasure, in one transaction: removes some rows, and counts them. The first step that finds nothing is the first look. The
 * erasure has finished once a later step finds nothing, and all transactions that were open at the first look have ended. The time of the
 * first look is the end of the erasure: everything published before it is erased. Publishing takes no lock for this.
 *
 * @param removals each removes rows; a step runs them in turn until one has removed some
 */
export function eraseStep(db: Db, customer: string, removals: readonly Removal[]): Promise<ErasureState> {
  return transactionWithRetry(db, async (trx) => {
    const [erasure] = await rows<{ actor: Actor; found: boolean; settled: boolean }>(
      trx,
      `select c.erasure_actor as actor, c.erasure_look is not null as found, ${IS_SETTLED} as settled from customers c
        where c.id = :customer and c.erasure_started is not null and c.erasure_finished is null
        for no key update skip locked`,
      { customer },
    );
    if (!erasure) return "busy";
    for (const remove of removals) {
      const { entries = [], ...removed } = await remove(trx, customer);
      const counts = { webhooks: 0, keys: 0, payloads: 0, deliveries: 0, ...removed };
      if (Object.values(counts).every((n) => n === 0)) continue;
      await recordChanges(trx, erasure.actor, entries);
      await count(
        trx,
        `update customers set erased_webhooks = erased_webhooks + :webhooks::int, erased_keys = erased_keys + :keys::int,
            erased_payloads = erased_payloads + :payloads::int, erased_deliveries = erased_deliveries + :deliveries::int
          where id = :customer`,
        { customer, ...counts },
      );
      return "more";
    }
    if (erasure.found && !erasure.settled) return "waiting";
    // Transactions that begin later get larger ids.
    const now = erasure.settled
      ? "erasure_finished = erasure_looked, erasure_actor = null"
      : "erasure_look = pg_current_xact_id(), erasure_looked = now()";
    await count(trx, `update customers set ${now} where id = :customer`, { customer });
    return erasure.settled ? "finished" : "waiting";
  });
}
