import { type Db, plainArray, rows } from "../lib/pg/index.ts";

/** The part of a request that all deliveries of an event share. If the event is not stored, every value is null. */
export interface EventContent {
  /** The JSON body; null if it was erased, or the event is not stored or cannot be read. */
  payload: string | null;
  /** The error of PostgreSQL if it cannot read the event. */
  damage?: unknown;
  userId: string;
  /** The number of its event type. */
  process?: number;
  /** Whether the event is a test event. */
  test?: boolean;
  /** The W3C Trace Context of the publisher's call; null without one. */
  traceparent?: string | null;
  /** The number of webhooks that get the event. */
  recipients?: number;
}

/**
 * Loads the contents of events, by event id. Adds up the sizes of the payloads in order, and omits the events from which on the sum
 * exceeds `maxBytes`. Never omits events without a payload. An event that is not stored, for example after a partial restore, has none.
 *
 * @param eventIds duplicates are ignored
 * @param options.maxBytes the maximum total size of the payloads, in bytes
 * @param options.alone whether the first payload is loaded regardless of its size
 */
export async function loadContents(
  db: Db,
  eventIds: readonly string[],
  options: { maxBytes: number; alone: boolean },
): Promise<Map<string, EventContent>> {
  const found = await rows<EventContent & { id: string }>(
    db,
    // PostgreSQL knows the length of a payload without reading it.
    `select id, user_id as "userId", process, test, traceparent, recipients, payload from (
        select a.id, e.user_id, e.process, e.test, e.traceparent, e.recipients, e.payload,
          coalesce(sum(octet_length(e.payload)) over before, 0) + octet_length(e.payload) <= :maxBytes::int8
            or :alone::bool and a.place = 1 as fits
        from unnest(:eventIds::uuid[]) with ordinality a(id, place)
          -- One index lookup per event, even with a plan that was made while the partition was empty.
          left join lateral (select * from events e where e.id = a.id offset 0) e on true
        window before as (order by a.place rows between unbounded preceding and 1 preceding)
      ) e
      -- fits is null for an event without a payload.
      where fits is not false`,
    { eventIds: plainArray([...new Set(eventIds)]), ...options },
    { prepare: "load_contents" },
  );
  return new Map(found.map(({ id, ...content }) => [id, content]));
}
