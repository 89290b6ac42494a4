import { LRUCache } from "lru-cache";
import { type Db, gathering, isDamage, untilAnswered } from "../lib/pg/index.ts";
import { type Clock, systemClock } from "../lib/process/index.ts";
import { type ClaimedDelivery, type EventContent, loadContents } from "../queue/index.ts";

/**
 * Batch limits. One load at a time, because each may use all of the free space. Claims that need events meanwhile share
 * the next load: dozens of retry groups that claim a few deliveries each would otherwise delay the first attempts.
 */
const CLAIMS = { most: 100, atOnce: 1 };
/**
 * The time for which the payload of an event stays cached after its last use, in milliseconds, if other webhooks still need its first
 * attempt. Webhooks reach an event at different times, for example if some of them fail.
 */
const KEPT_MS = 5_000;
/** Payloads that no delivery holds take at most this part of the maximum: one eighth. */
const UNUSED_DIVISOR = 8;
/** The weight of the latest payload in the moving average of payload sizes. */
const AVERAGE_WEIGHT = 0.2;

/** A cached payload. */
interface Held {
  readonly content: EventContent;
  readonly bytes: number;
  /** The number of deliveries that hold it. */
  uses: number;
  /** The number of recipients of the event whose first attempt this process has not claimed since the payload was loaded. */
  left: number;
}

/**
 * Payload cache for the deliveries that a process holds. Deliveries of the same event share one copy, from the first claim
 * to the last result and, for further first attempts, some time longer. The total size is bounded.
 */
export type EventContents = ReturnType<typeof createEventContents>;

/**
 * @param maxBytes the limit of all cached payloads, in characters (a load counts bytes, which are at least as many). A larger payload is
 *   accepted if no delivery holds another
 */
export function createEventContents(db: Db, maxBytes: number, clock: Pick<Clock, "now"> = systemClock) {
  const held = new Map<string, Held>();
  let heldBytes = 0;
  let averageBytes = 1_000;
  /** Payloads that no delivery holds. They are removed when held payloads need their space. */
  const unused = new LRUCache<string, Held>({
    maxSize: Math.ceil(maxBytes / UNUSED_DIVISOR),
    sizeCalculation: ({ bytes }) => bytes,
    ttl: KEPT_MS,
    ttlResolution: 0,
    perf: clock,
  });
  /** Loads and retains, for each claim, the payloads of its deliveries. Returns those that do not fit. */
  const loadAndUse = gathering(async (claims: readonly (readonly ClaimedDelivery[])[]) => {
    await load([...new Set(claims.flat().map(({ eventId }) => eventId))]);
    return claims.map((missing) => missing.filter((delivery) => !use(delivery)));
  }, CLAIMS);

  /** Loads payloads. If PostgreSQL cannot read one of them, loads the halves apart, so that only that event has no payload. */
  async function load(eventIds: readonly string[]): Promise<void> {
    const missing = eventIds.filter((id) => !held.has(id));
    if (missing.length === 0) return;
    const options = { maxBytes: Math.max(0, maxBytes - heldBytes), alone: heldBytes === 0 };
    try {
      for (const loaded of await untilAnswered(() => loadContents(db, missing, options))) add(...loaded);
    } catch (damage) {
      if (!isDamage(damage)) throw damage;
      const middle = missing.length >> 1;
      if (middle === 0) return add(missing[0] as string, { payload: null, userId: "", damage });
      await load(missing.slice(0, middle));
      await load(missing.slice(middle));
    }
  }

  function add(eventId: string, content: EventContent): void {
    const bytes = content.payload?.length ?? 0;
    averageBytes += (Math.max(100, bytes) - averageBytes) * AVERAGE_WEIGHT;
    hold(eventId, { content, bytes, uses: 0, left: content.recipients ?? 0 });
    while (unused.size > 0 && unused.calculatedSize > maxBytes - heldBytes) unused.pop();
  }

  function hold(eventId: string, payload: Held): void {
    // While the payload was being loaded, a first attempt may have taken it from `unused`.
    if (held.has(eventId)) return;
    unused.delete(eventId);
    held.set(eventId, payload);
    heldBytes += payload.bytes;
  }

  function use({ eventId, token }: ClaimedDelivery): boolean {
    const isFirst = token.table === "queue" && token.attempts === 0;
    // Only first attempts use payloads from `unused`: a retry or resend may be claimed after the payload was erased in the database.
    const payload = held.get(eventId) ?? (isFirst ? unused.get(eventId) : undefined);
    if (!payload) return false;
    if (payload.uses === 0) hold(eventId, payload);
    payload.uses += 1;
    if (isFirst) payload.left -= 1;
    return true;
  }

  /** Releases the payload. Must be called once for each delivery that `hold` accepted. */
  function release({ eventId }: ClaimedDelivery): void {
    const payload = held.get(eventId);
    if (!payload) return;
    payload.uses -= 1;
    if (payload.uses > 0) return;
    held.delete(eventId);
    heldBytes -= payload.bytes;
    if (payload.left > 0 && payload.bytes > 0) unused.set(eventId, payload);
  }

  return {
    /** The number of further deliveries whose payloads fit, estimated from recent payload sizes. */
    get room(): number {
      const fitting = Math.floor((maxBytes - heldBytes) / averageBytes);
      return Math.max(heldBytes === 0 ? 1 : 0, fitting);
    },

    /**
     * Loads and retains the payloads of the deliveries. Returns the deliveries whose payloads do not fit. The caller
     * must call `release` for each of the others. On error, nothing is retained.
     */
    async hold(deliveries: readonly ClaimedDelivery[]): Promise<ClaimedDelivery[]> {
      const missing = new Set(deliveries.filter((delivery) => !use(delivery)));
      if (missing.size === 0) return [];
      return loadAndUse([...missing]).catch((error) => {
        for (const delivery of deliveries) if (!missing.has(delivery)) release(delivery);
        throw error;
      });
    },

    /** The payload of a delivery that `hold` accepted. */
    of({ eventId }: ClaimedDelivery): EventContent {
      return (held.get(eventId) as Held).content;
    },

    release,
  };
}
