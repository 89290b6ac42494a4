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
/** The weight of the latest payload in the moving average of payload sizes. */
const AVERAGE_WEIGHT = 0.2;

/**
 * Payload cache for the deliveries that a process holds. Deliveries of the same event share one copy, kept from the
 * first claim to the last result. The total size is bounded.
 */
export class EventContents {
  readonly #db: Db;
  readonly #maxBytes: number;
  readonly #held = new Map<string, { content: EventContent; uses: number }>();
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
    this.#bytes -= held.content.payload?.length ?? 0;
  }

  #use({ eventId }: ClaimedDelivery): boolean {
    const held = this.#held.get(eventId);
    if (held) held.uses += 1;
    return held !== undefined;
  }

  #add(eventId: string, content: EventContent): void {
    const bytes = content.payload?.length ?? 0;
    this.#averageBytes += (Math.max(100, bytes) - this.#averageBytes) * AVERAGE_WEIGHT;
    this.#held.set(eventId, { content, uses: 0 });
    this.#bytes += bytes;
  }
}
