import type { Db } from "../db/database.ts";
import { isDamage, untilAnswered } from "../db/faults.ts";
import { gathering } from "../db/gathering.ts";
import type { ClaimedDelivery } from "../db/queue/claims.ts";
import { type EventContent, loadContents } from "../db/queue/event-contents.ts";

/**
 * Batch limits. One load at a time, because each may use all of the free space. Claims that need events meanwhile share
 * the next load: dozens of retry groups that claim a few deliveries each would otherwise delay the first attempts.
 */
const CLAIMS = { most: 100, atOnce: 1 };
/**
 * The interval of `dropUnused`, in milliseconds: the payload of an event stays one to two intervals after its last use while other
 * webhooks are still to get it. Webhooks fall out of step as soon as one fails.
 */
export const KEPT_MS = 5_000;
/** The divisor of the maximum that gives the share of payloads that no delivery holds: one eighth. */
const UNUSED_DIVISOR = 8;
/** The part of a limit of unused payloads that stays when they exceed it. */
const KEPT_PART = 0.9;
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
  /** The number of calls of `dropUnused` before the last delivery released it. */
  releasedAt: number;
}

/**
 * Payload cache for the deliveries that a process holds. Deliveries of the same event share one copy, from the first claim
 * to the last result and, for further first attempts, some time longer. The total size is bounded.
 */
export class EventContents {
  readonly #db: Db;
  readonly #maxBytes: number;
  readonly #held = new Map<string, Held>();
  /** Payloads that no delivery holds, oldest release first. They make room for others. */
  readonly #unused = new Map<string, Held>();
  #unusedBytes = 0;
  #drops = 0;
  /** Loads and retains, for each claim, the payloads of its deliveries. Returns those that do not fit. */
  readonly #loadAndUse: (missing: readonly ClaimedDelivery[]) => Promise<ClaimedDelivery[]>;
  #bytes = 0;
  #averageBytes = 1_000;

  /**
   * @param maxBytes the limit of cached payloads, in characters. A single larger payload is accepted if the cache is
   *   empty
   */
  constructor(db: Db, maxBytes: number) {
    this.#db = db;
    this.#maxBytes = maxBytes;
    this.#loadAndUse = gathering(async (claims: readonly (readonly ClaimedDelivery[])[]) => {
      await this.#load(
        claims
          .flat()
          .map(({ eventId }) => eventId)
          .filter((id) => !this.#held.has(id)),
      );
      return claims.map((missing) => missing.filter((delivery) => !this.#use(delivery)));
    }, CLAIMS);
  }

  /** The number of further deliveries whose payloads fit, estimated from recent payload sizes. */
  get room(): number {
    if (this.#bytes === 0) return Math.max(1, Math.floor(this.#maxBytes / this.#averageBytes));
    return Math.max(0, Math.floor((this.#maxBytes - this.#bytes) / this.#averageBytes));
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

  async #load(eventIds: string[]): Promise<void> {
    if (eventIds.length === 0) return;
    const maxBytes = Math.max(0, this.#maxBytes - this.#bytes);
    const loaded = await this.#read([...new Set(eventIds)], { maxBytes, alone: this.#bytes === 0 });
    for (const [eventId, content] of loaded) this.#add(eventId, content);
  }

  /** Events that PostgreSQL cannot read have no payload, and do not affect the others: each half is read by itself. */
  async #read(
    eventIds: string[],
    options: { maxBytes: number; alone: boolean },
  ): Promise<Map<string, EventContent>> {
    try {
      return await untilAnswered(() => loadContents(this.#db, eventIds, options));
    } catch (damage) {
      if (!isDamage(damage)) throw damage;
      if (eventIds.length === 1)
        return new Map([[eventIds[0] as string, { payload: null, userId: "", damage }]]);
      const middle = eventIds.length >> 1;
      const first = await this.#read(eventIds.slice(0, middle), options);
      const bytes = [...first.values()].reduce((sum, { payload }) => sum + (payload?.length ?? 0), 0);
      const rest = await this.#read(eventIds.slice(middle), {
        maxBytes: Math.max(0, options.maxBytes - bytes),
        alone: options.alone && bytes === 0,
      });
      return new Map([...first, ...rest]);
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
    if (held.left <= 0 || held.bytes === 0) return;
    held.releasedAt = this.#drops;
    this.#unused.set(eventId, held);
    this.#unusedBytes += held.bytes;
    this.#dropUnusedBeyond(this.#maxBytes / UNUSED_DIVISOR);
  }

  /** Drops the payloads that no delivery has held since the previous call. Must be called every KEPT_MS. */
  dropUnused(): void {
    for (const [eventId, { releasedAt }] of this.#unused) {
      if (releasedAt === this.#drops) break;
      this.#takeUnused(eventId);
    }
    this.#drops += 1;
  }

  #use(delivery: ClaimedDelivery): boolean {
    const { eventId } = delivery;
    let held = this.#held.get(eventId);
    // A retry or resend may have been claimed after the payload was erased, if a worker held it at that moment.
    if (!held && isFirstAttempt(delivery)) {
      held = this.#takeUnused(eventId);
      if (held) this.#hold(eventId, held);
    }
    if (!held) return false;
    held.uses += 1;
    if (isFirstAttempt(delivery)) held.left -= 1;
    return true;
  }

  #takeUnused(eventId: string): Held | undefined {
    const held = this.#unused.get(eventId);
    if (!held) return undefined;
    this.#unused.delete(eventId);
    this.#unusedBytes -= held.bytes;
    return held;
  }

  #hold(eventId: string, held: Held): void {
    this.#held.set(eventId, held);
    this.#bytes += held.bytes;
  }

  #add(eventId: string, content: EventContent): void {
    // First attempts may hold it again since the load began.
    if (this.#held.has(eventId)) return;
    const bytes = content.payload?.length ?? 0;
    this.#averageBytes += (Math.max(100, bytes) - this.#averageBytes) * AVERAGE_WEIGHT;
    this.#takeUnused(eventId);
    this.#hold(eventId, { content, bytes, uses: 0, left: content.recipients ?? 0, releasedAt: 0 });
    this.#dropUnusedBeyond(this.#maxBytes - this.#bytes);
  }

  /**
   * If payloads that no delivery holds exceed `bytes` characters, drops some, oldest release first: at most `KEPT_PART` of `bytes` stay.
   */
  #dropUnusedBeyond(bytes: number): void {
    if (this.#unusedBytes <= bytes) return;
    // Not one at a time: each iteration passes the places of those that were deleted.
    for (const eventId of this.#unused.keys()) {
      if (this.#unusedBytes <= bytes * KEPT_PART) break;
      this.#takeUnused(eventId);
    }
  }
}

function isFirstAttempt({ token }: ClaimedDelivery): boolean {
  return token.table === "queue" && token.attempts === 0;
}
