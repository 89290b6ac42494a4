import { plainArray } from "../array-literal.ts";
import type { Db } from "../database.ts";
import { rows } from "../database.ts";

/** What an event gives to each of its deliveries. */
export interface EventContent {
  /** The JSON body; null when it was erased. */
  payload: string | null;
  userId: string;
  /** Made up to test a webhook. */
  test?: boolean;
}

/** The contents of events, by event id; one read each, however many deliveries carry it. */
export async function loadContents(db: Db, eventIds: readonly string[]): Promise<Map<string, EventContent>> {
  const found = await rows<{ id: string; payload: string | null; user_id: string; test: boolean }>(
    db,
    "select id, payload, user_id, test from events where id = any(:eventIds::uuid[])",
    { eventIds: plainArray([...new Set(eventIds)]) },
    { prepare: "load_contents" },
  );
  return new Map(found.map((row) => [row.id, { payload: row.payload, userId: row.user_id, test: row.test }]));
}
