import { type Db, rows } from "../lib/pg/index.ts";
import type { LatestEvent } from "../webhooks/rpc/index.ts";
import { hasDelivery, TABLES } from "./deliveries.ts";

/** The maximum number of events that are looked at, of all types. */
const MAX_SCANNED = 20_000;
/** The maximum total size of the payloads, in bytes. */
const MAX_BYTES = 8 * 1024 * 1024;

const IS_DELIVERED = TABLES.map((table) => hasDelivery(table, ":deliveredTo::bigint", "scanned.id")).join(
  " or ",
);

/**
 * The latest events of a type with a payload, newest first, without test events. Fewer than `limit` if they are large.
 *
 * @param deliveredTo only events that this webhook has a delivery of; null for all
 * @param userId only events of this user; null for all
 */
export function latestEvents(
  db: Db,
  process: number,
  { deliveredTo, userId }: { deliveredTo: bigint | null; userId: string | null },
  limit: number,
): Promise<LatestEvent[]> {
  return rows<LatestEvent>(
    db,
    // PostgreSQL knows the length of a payload without reading it.
    `select e.id, e.user_id as "userId", e.payload
      from (
        select e.*, sum(octet_length(e.payload)) over (order by e.id desc) as bytes
        from (
          select * from (
            select id, user_id, process, test, payload from events
            ${userId === null ? "" : "where user_id = :userId"} order by id desc limit ${MAX_SCANNED}
          ) scanned
          where process = :process::int and not test and payload is not null
            ${deliveredTo === null ? "" : `and (${IS_DELIVERED})`}
          order by id desc limit :limit::int
        ) e
      ) e
      where e.bytes <= ${MAX_BYTES} order by e.id desc`,
    { process, limit, deliveredTo, userId },
  );
}
