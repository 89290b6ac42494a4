import { type Db, rows } from "../../src/lib/pg/index.ts";
import { NIL_ID } from "../../src/schema/index.ts";

/** Counts of all deliveries that retention has not deleted, in one snapshot. `accepted` must equal the sum of the others. */
export interface Ledger {
  /** The recipients of all events: the number of deliveries that must exist. */
  accepted: bigint;
  /** Deliveries without a recorded attempt in their current round. */
  queued: bigint;
  retrying: bigint;
  /** Deliveries in the log. */
  ended: bigint;
  /** Deliveries that a fan-out has not inserted yet, so that they have no row. */
  toFanOut: bigint;
}

/** Reads the ledger in one snapshot. Scans the whole log, so do not call it frequently. */
export async function readLedger(db: Db): Promise<Ledger> {
  const [ledger] = await rows<Ledger>(
    db,
    `with retained as (
        select coalesce((select value from settings where name = 'retained_from'), '${NIL_ID}')::uuid as id
      )
      select
        (select coalesce(sum(recipients), 0)::bigint from events, retained r where events.id >= r.id) as accepted,
        (select count(*) from queue, retained r where queue.id >= r.id) as queued,
        (select count(*) from retries, retained r where retries.id >= r.id) as retrying,
        (select count(*) from deliveries, retained r where deliveries.id >= r.id) as ended,
        (select coalesce(sum(remaining), 0)::bigint from fan_out, retained r where event_id >= r.id) as "toFanOut"`,
  );
  return ledger as Ledger;
}

/** The number of deliveries missing from the ledger; negative if some are counted twice, 0 if it balances. */
export function imbalance({ accepted, queued, retrying, ended, toFanOut }: Ledger): bigint {
  return accepted - queued - retrying - ended - toFanOut;
}
