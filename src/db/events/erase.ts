import type { Db } from "../database.ts";
import { count, rows } from "../database.ts";
import { cancelOfErased } from "../queue/endings.ts";

/** What one step erased. */
export interface ErasedStep {
  /** Events whose payload is gone. */
  erased: number;
  /** Open deliveries of theirs that were cancelled. */
  cancelled: number;
}

/** Texts of responses, in the tables that hold attempts. */
const RESPONSES = [
  ["deliveries", "id"],
  ["attempts", "delivery_id"],
] as const;

/**
 * Erases the payloads of a user's events, at most `limit`, in one transaction: with them the responses to their deliveries,
 * which may repeat what was sent. Ids, states and counts stay; open deliveries are cancelled.
 */
export function erasePayloads(db: Db, userId: string, limit: number): Promise<ErasedStep> {
  return db.transaction(async (trx) => {
    const erased = await rows<{ id: string }>(
      trx,
      `update events set payload = null where id = any(array(
          select id from events where user_id = :userId and payload is not null order by id limit :limit::int for update
        )) and payload is not null returning id`,
      { userId, limit },
    );
    const eventIds = erased.map(({ id }) => id);
    if (eventIds.length === 0) return { erased: 0, cancelled: 0 };
    const cancelled = await cancelOfErased(trx, eventIds);
    for (const [table, id] of RESPONSES) {
      await count(
        trx,
        `update ${table} d set response_start = null
          from unnest(:eventIds::uuid[]) e(id)
          where d.${id} >= overlay(e.id::text placing '-0000-000000000000' from 19)::uuid
            and d.${id} <= overlay(e.id::text placing '-ffff-ffffffffffff' from 19)::uuid
            and d.response_start is not null
            ${table === "deliveries" ? "and d.event_id = e.id" : ""}`,
        { eventIds },
      );
    }
    return { erased: eventIds.length, cancelled };
  });
}
