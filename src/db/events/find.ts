import type { Db } from "../database.ts";
import { rows } from "../database.ts";

/** An event as it was published. */
export interface StoredEvent {
  id: string;
  /** Number of the WebhookProcess. */
  process: number;
  userId: string;
  /** ISO 8601 in UTC, to the microsecond. */
  occurred: string;
  /** The body receivers get; null once erased. */
  payload: string | null;
}

/** The events that are still stored, in any order. */
export function findEvents(db: Db, ids: readonly string[]): Promise<StoredEvent[]> {
  return rows<StoredEvent>(
    db,
    `select id, process, user_id as "userId", payload,
        to_char(occurred at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as occurred
      from events where id = any(:ids::uuid[])`,
    { ids: [...ids] },
  );
}
