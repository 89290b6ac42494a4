import type { Db } from "../database.ts";
import { rows } from "../database.ts";

/** Where every delivery is that was ever accepted and not dropped by retention, as of one moment. */
export interface Ledger {
  /** Recipients of all events. */
  accepted: bigint;
  /** Not yet tried in their round. */
  queued: bigint;
  retrying: bigint;
  /** In the log. */
  ended: bigint;
  /** Of events that are still being fanned out: without a row of their own yet. */
  toFanOut: bigint;
}

/** Reads the ledger in one snapshot. It counts the whole log, so it is not for every minute. */
export async function readLedger(db: Db): Promise<Ledger> {
  const [ledger] = await rows<Ledger>(
    db,
    `with retained as (
        select coalesce((select value from settings where name = 'retained_from'), '00000000-0000-0000-0000-000000000000')::uuid as id
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

/** How many deliveries are missing from the ledger, or, when negative, there too often; 0 when it balances. */
export function imbalance({ accepted, queued, retrying, ended, toFanOut }: Ledger): bigint {
  return accepted - queued - retrying - ended - toFanOut;
}
