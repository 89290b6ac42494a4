import type { Scope } from "../calls/index.ts";
import { findMatchingEvents } from "../events/index.ts";
import type { Db } from "../lib/pg/index.ts";
import { type DeliveryFilter, type DeliveryPage, listDeliveries } from "./list.ts";

/** The values that a search compares, besides user ids, idempotency keys and searchable values. */
export interface SearchText {
  /** Trimmed, not empty. */
  text: string;
  /** Set if it is a UUID, in lower case: the id of a delivery or an event. */
  uuid?: string | undefined;
  /** Set if it is the number of a webhook. */
  webhookId?: bigint | undefined;
  /** The host of a webhook, with or without a port, normalised as in URLs. */
  host?: string | undefined;
  /** The start of a webhook's URL, normalised. */
  url?: string | undefined;
}

/**
 * `listDeliveries` with only those that a text identifies: by their id, event, webhook, user id, idempotency key, or a
 * searchable value of the payload. All, without a text.
 *
 * What the text may mean is read one after the other, each in its own snapshot, and merged.
 */
export async function searchDeliveries(
  db: Db,
  scope: Scope,
  filter: DeliveryFilter,
  limit: number,
  search: SearchText | undefined,
): Promise<DeliveryPage> {
  if (!search) return listDeliveries(db, scope, filter, limit);
  const { text, uuid, webhookId, host, url } = search;
  const pages: DeliveryPage[] = [];
  const read = async (more: Parameters<typeof listDeliveries>[2]) => {
    const page = await listDeliveries(db, scope, { ...filter, ...more }, limit);
    pages.push(page);
    return page;
  };
  if (uuid !== undefined && isSame(filter.deliveryId, uuid)) await read({ deliveryId: uuid });
  if (uuid !== undefined && isSame(filter.eventId, uuid)) await read({ eventId: uuid });
  if (webhookId !== undefined && isSame(filter.webhookId, webhookId)) await read({ webhookId });
  if (host !== undefined) await read({ host, url });
  // Installed apps and customers do not know the publishers' idempotency keys.
  const matching = await findMatchingEvents(db, text, filter, {
    keys: scope === "everything",
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

/** @param ascending whether the rows nearest to the start of the page are the oldest */
function merged(pages: readonly DeliveryPage[], limit: number, ascending: boolean): DeliveryPage {
  const isBeyond = (id: string, other: string) => (ascending ? id > other : id < other);
  let horizon: string | null = null;
  for (const { searchedTo } of pages) {
    if (searchedTo !== null && (horizon === null || isBeyond(horizon, searchedTo))) horizon = searchedTo;
  }
  const found = new Map(pages.flatMap(({ deliveries }) => deliveries).map((each) => [each.id, each]));
  const sorted = [...found.values()]
    .filter(({ id }) => horizon === null || !isBeyond(id, horizon))
    .sort((a, b) => (a.id < b.id ? 1 : -1));
  const deliveries = ascending ? sorted.slice(-limit) : sorted.slice(0, limit);
  return { deliveries, searchedTo: deliveries.length < limit ? horizon : null };
}
