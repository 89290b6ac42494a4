import type { Db } from "./database.ts";
import { rows } from "./database.ts";

/** The JSON bodies of events, by event id; one read each, however many deliveries carry it. */
export async function loadPayloads(db: Db, eventIds: readonly string[]): Promise<Map<string, string>> {
  const found = await rows<{ id: string; payload: string }>(
    db,
    "select id, payload from events where id = any(:eventIds::uuid[])",
    { eventIds: [...new Set(eventIds)] },
    { prepare: "load_payloads" },
  );
  return new Map(found.map((row) => [row.id, row.payload]));
}
