import type { Scope } from "../calls/index.ts";
import { findMatchingEvents } from "../events/index.ts";
import type { Db } from "../lib/pg/index.ts";
import { FAILURE_STATES } from "./deliveries.ts";
import { type DeliveryFilter, type DeliveryPage, knowsKeys, listDeliveries, MAX_COMPARED } from "./list.ts";
import { meaningsOf, namePartOf, type SearchText, splitError, wordsOf } from "./search-text.ts";

/**
 * `listDeliveries` with only those that a text identifies: by their id, event, webhook, user id, idempotency key, or a
 * searchable value of the payload. A text of several words also finds those that each word identifies. `error:` with the start of an error
 * or a reason selects failed deliveries and those with a failed attempt, unless the filter has states. All, without a text.
 */
export async function searchDeliveries(
  db: Db,
  scope: Scope,
  filter: DeliveryFilter,
  limit: number,
  search: SearchText | undefined,
): Promise<DeliveryPage> {
  if (!search) return listDeliveries(db, scope, filter, limit);
  const { rest, error } = splitError(search.text);
  if (error !== undefined) {
    const states = filter.states?.length ? filter.states : FAILURE_STATES;
    return searchDeliveries(
      db,
      scope,
      { ...filter, states, error },
      limit,
      rest ? meaningsOf(rest) : undefined,
    );
  }
  const whole = await identified(db, scope, filter, limit, search);
  const words = wordsOf(search.text);
  if (words.length === 0) return whole;
  const isAscending = filter.after !== undefined;
  let furthest: DeliveryPage | undefined;
  // The deliveries that one word identifies, of which the others select. The reading that comes furthest has all.
  for (const word of words) {
    const others = words.filter((each) => each !== word);
    const page = await identified(db, scope, { ...filter, words: others }, limit, word, MAX_COMPARED);
    const [to, furthestTo] = [page.searchedTo, furthest?.searchedTo ?? null];
    if (!furthest || to === null || (furthestTo !== null && isBeyond(isAscending, to, furthestTo)))
      furthest = page;
    if (to === null) break;
  }
  return merged([whole, ...(furthest ? [furthest] : [])], limit, isAscending);
}

/**
 * The deliveries that a text identifies as a whole. What the text may mean is read one after the other, each in its own snapshot, and
 * merged.
 */
async function identified(
  db: Db,
  scope: Scope,
  filter: Parameters<typeof listDeliveries>[2],
  limit: number,
  search: SearchText,
  scanned?: number,
): Promise<DeliveryPage> {
  const { text, uuid, webhookId, host, url } = search;
  const pages: DeliveryPage[] = [];
  const read = async (more: Parameters<typeof listDeliveries>[2]) => {
    const page = await listDeliveries(db, scope, { ...filter, ...more }, limit, scanned);
    pages.push(page);
    return page;
  };
  if (uuid !== undefined && isSame(filter.deliveryId, uuid)) await read({ deliveryId: uuid });
  if (uuid !== undefined && isSame(filter.eventId, uuid)) await read({ eventId: uuid });
  if (webhookId !== undefined && isSame(filter.webhookId, webhookId)) await read({ webhookId });
  if (host !== undefined) await read({ host, url });
  const name = namePartOf(search);
  if (name !== undefined) await read({ name });
  const matching = await findMatchingEvents(db, text, filter, {
    keys: knowsKeys(scope),
    customer: scope === "everything" ? null : scope.customer,
  });
  if (matching.events.length > 0) {
    const { deliveries, searchedTo } = await read({ events: matching.events });
    if (searchedTo === null && deliveries.length < limit)
      pages.push({ deliveries: [], searchedTo: matching.searchedTo });
  }
  return merged(pages, limit, filter.after !== undefined);
}

/** Whether a filter admits a value. */
function isSame<T extends string | bigint>(filtered: T | undefined, value: T): boolean {
  return filtered === undefined || String(filtered).toLowerCase() === String(value);
}

/** Whether an id comes after another in the direction of reading. */
function isBeyond(ascending: boolean, id: string, other: string): boolean {
  return ascending ? id > other : id < other;
}

/** @param ascending whether the rows nearest to the start of the page are the oldest */
function merged(pages: readonly DeliveryPage[], limit: number, ascending: boolean): DeliveryPage {
  let horizon: string | null = null;
  for (const { searchedTo } of pages) {
    if (searchedTo !== null && (horizon === null || isBeyond(ascending, horizon, searchedTo)))
      horizon = searchedTo;
  }
  const found = new Map(pages.flatMap(({ deliveries }) => deliveries).map((each) => [each.id, each]));
  const sorted = [...found.values()]
    .filter(({ id }) => horizon === null || !isBeyond(ascending, id, horizon))
    .sort((a, b) => (a.id < b.id ? 1 : -1));
  const deliveries = ascending ? sorted.slice(-limit) : sorted.slice(0, limit);
  return { deliveries, searchedTo: deliveries.length < limit ? horizon : null };
}
