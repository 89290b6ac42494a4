import { plainArray } from "../array-literal.ts";
import type { Db } from "../database.ts";
import { rows } from "../database.ts";

/** What an event gives to each of its deliveries. */
export interface EventContent {
  /** The JSON body; null when it was erased, or when the event is not stored. */
  payload: string | null;
  userId: string;
  /** Made up to test a webhook. */
  test?: boolean;
}

/**
 * The contents of events, by event id; one read each, however many deliveries carry it. Those that do not fit are left
 * out; an event that is not stored, as after a partial restore, has no payload.
 *
 * @param options.maxBytes of all payloads together
 * @param options.alone whether the first event's is read whatever its size
 */
export async function loadContents(
  db: Db,
  eventIds: readonly string[],
  options: { maxBytes: number; alone: boolean },
): Promise<Map<string, EventContent>> {
  const asked = [...new Set(eventIds)];
  const found = await rows<{
    id: string;
    payload: string | null;
    user_id: string;
    test: boolean;
    fits: boolean;
  }>(
    db,
    // The length of a payload is known without reading it.
    `select id, user_id, test, fits, case when fits then payload end as payload from (
        select e.id, e.user_id, e.test, e.payload,
          coalesce(sum(octet_length(e.payload)) over before, 0) + coalesce(octet_length(e.payload), 0) <= :maxBytes::int8
            or :alone::bool and a.place = 1 as fits
        from unnest(:eventIds::uuid[]) with ordinality a(id, place) join events e on e.id = a.id
        window before as (order by a.place rows between unbounded preceding and 1 preceding)
      ) e`,
    { eventIds: plainArray(asked), ...options },
    { prepare: "load_contents" },
  );
  const contents = new Map<string, EventContent>(asked.map((id) => [id, { payload: null, userId: "" }]));
  for (const { id, payload, user_id, test, fits } of found) {
    if (fits) contents.set(id, { payload, userId: user_id, test });
    else contents.delete(id);
  }
  return contents;
}
