import { LRUCache } from "lru-cache";
import type { Db } from "../db/database.ts";
import { isDamage, untilAnswered } from "../db/faults.ts";
import { gathering } from "../db/gathering.ts";
import type { ClaimedDelivery } from "../db/queue/claims.ts";
import { type EventContent, loadContents } from "../db/queue/event-contents.ts";
import { type Clock, systemClock } from "../process/clock.ts";

/**
 * Batch limits. One load at a time, because each may use all of the free space. Claims that need events meanwhile share
 * the next load: dozens of retry groups that claim a few deliveries each would otherwise delay the first attempts.
 */
const CLAIMS = { most: 100, atOnce: 1 };
/**
 * The time for which the payload of an event stays after its last use while other webhooks are still to get it, in milliseconds.
 * Webhooks fall out of step as soon as one fails.
 */
const KEPT_MS = 5_000;
/** The divisor of the maximum that gives the share of payloads that no delivery holds: one eighth. */
const UNUSED_DIVISOR = 8;
/** The weight of the latest payload in the moving average of payload sizes. */
const AVERAGE_WEIGHT = 0.2;

/** The payload of an event. */
interface Held {
  readonly content: EventContent;
  readonly bytes: number;
  /** The number of deliveries that hold it. */
  uses: number;
  /** The number of first attempts to come, of all processes. */
  left: number;
}

/**
 * Payload cache for the deliveries that a process holds. Deliveries of the same event share one copy, from the first claim
 * to the last result and, for further first attempts, some time longer. The total size is bounded.
 */
export class EventContents {
  readonly #db: Db;
  readonly #maxBytes: number;
  readonly #held = new Map<string, Held>();
  #bytes = 0;
  #averageBytes = 1_000;
  /** Payloads that no delivery holds. They make room for others. */
  readonly #unused: LRUCache<string, Held>;
  /** Loads and retains, for each claim, the payloads of its deliveries. Returns those that do not fit. */
  readonly #loadAndUse: (missing: readonly ClaimedDelivery[]) => Promise<ClaimedDelivery[]>;

  /**
   * @param maxBytes the limit of cached payloads, in characters. A single larger payload is accepted if the cache is
   *   empty
   */
  constructor(db: Db, maxBytes: number, clock: Pick<Clock, "now"> = systemClock) {
    this.#db = db;
    this.#maxBytes = maxBytes;
    this.#unused = new LRUCache({
      maxSize: Math.ceil(maxBytes / UNUSED_DIVISOR),
      sizeCalculation: ({ bytes }) => bytes,
      ttl: KEPT_MS,
      ttlResolution: 0,
      perf: clock,
    });
    this.#loadAndUse = gathering(async (claims: readonly (readonly ClaimedDelivery[])[]) => {
      await this.#load([...new Set(claims.flat().map(({ eventId }) => eventId))]);
      return claims.map((missing) => missing.filter((delivery) => !this.#use(delivery)));
    }, CLAIMS);
  }

  /** The number of further deliveries whose payloads fit, estimated from recent payload sizes. */
  get room(): number {
    const fitting = Math.floor((this.#maxBytes - this.#bytes) / this.#averageBytes);
    return Math.max(this.#bytes === 0 ? 1 : 0, fitting);
  }

  /**
   * Loads and retains the payloads of the deliveries. Returns the deliveries whose payloads do not fit. The caller
   * must call `release` for each of the others. On error, nothing is retained.
   */
  async hold(deliveries: readonly ClaimedDelivery[]): Promise<ClaimedDelivery[]> {
    const missing = deliveries.filter((delivery) => !this.#use(delivery));
    if (missing.length === 0) return [];
    try {
      return await this.#loadAndUse(missing);
    } catch (error) {
      const unheld = new Set(missing);
      for (const delivery of deliveries) if (!unheld.has(delivery)) this.release(delivery);
      throw error;
    }
  }

  /** Events that PostgreSQL cannot read have no payload, and do not affect the others: each half is read by itself. */
  async #load(eventIds: readonly string[]): Promise<void> {
    const missing = eventIds.filter((id) => !this.#held.has(id));
    if (missing.length === 0) return;
    const options = { maxBytes: Math.max(0, this.#maxBytes - this.#bytes), alone: this.#bytes === 0 };
    try {
      const loaded = await untilAnswered(() => loadContents(this.#db, missing, options));
      for (const [eventId, content] of loaded) this.#add(eventId, content);
    } catch (damage) {
      if (!isDamage(damage)) throw damage;
      const middle = missing.length >> 1;
      if (middle === 0) return this.#add(missing[0] as string, { payload: null, userId: "", damage });
      await this.#load(missing.slice(0, middle));
      await this.#load(missing.slice(middle));
    }
  }

  /** The payload of a delivery that `hold` accepted. */
  of({ eventId }: ClaimedDelivery): EventContent {
    return (this.#held.get(eventId) as { content: EventContent }).content;
  }

  /** Releases the payload. Must be called once for each delivery that `hold` accepted. */
  release({ eventId }: ClaimedDelivery): void {
    const held = this.#held.get(eventId);
    if (!held) return;
    held.uses -= 1;
    if (held.uses > 0) return;
    this.#held.delete(eventId);
    this.#bytes -= held.bytes;
    if (held.left > 0 && held.bytes > 0) this.#unused.set(eventId, held);
  }

  #use(delivery: ClaimedDelivery): boolean {
    const { eventId } = delivery;
    let held = this.#held.get(eventId);
    // A retry or resend may have been claimed after the payload was erased, if a worker held it at that moment.
    if (!held && isFirstAttempt(delivery)) {
      held = this.#unused.get(eventId);
      if (held) this.#hold(eventId, held);
    }
    if (!held) return false;
    held.uses += 1;
    if (isFirstAttempt(delivery)) held.left -= 1;
    return true;
  }

  #hold(eventId: string, held: Held): void {
    this.#unused.delete(eventId);
    this.#held.set(eventId, held);
    this.#bytes += held.bytes;
  }

  #add(eventId: string, content: EventContent): void {
    // First attempts may hold it again since the load began.
    if (this.#held.has(eventId)) return;
    const bytes = content.payload?.length ?? 0;
    this.#averageBytes += (Math.max(100, bytes) - this.#averageBytes) * AVERAGE_WEIGHT;
    this.#hold(eventId, { content, bytes, uses: 0, left: content.recipients ?? 0 });
    while (this.#unused.size > 0 && this.#unused.calculatedSize > this.#maxBytes - this.#bytes)
      this.#unused.pop();
  }
}

function isFirstAttempt({ token }: ClaimedDelivery): boolean {
  return token.table === "queue" && token.attempts === 0;
}
