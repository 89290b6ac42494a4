import type { Db } from "../database.ts";
import { rows } from "../database.ts";

/** A published event. */
export interface StoredEvent {
  id: string;
  /** The number of the WebhookProcess. */
  process: number;
  userId: string;
  /** ISO 8601 in UTC, in microseconds. */
  occurred: string;
  /** The body that receivers get; null if erased. */
  payload: string | null;
}

/** The given events that are still stored, in any order. */
export function findEvents(db: Db, ids: readonly string[]): Promise<StoredEvent[]> {
  return rows<StoredEvent>(
    db,
    `select id, process, user_id as "userId", payload,
        to_char(occurred at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as occurred
      from events where id = any(:ids::uuid[])`,
    { ids: [...ids] },
  );
}
