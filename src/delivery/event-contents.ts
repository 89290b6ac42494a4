import pLimit, { type LimitFunction } from "p-limit";
import type { Db } from "../db/database.ts";
import { untilAnswered } from "../db/faults.ts";
import type { ClaimedDelivery } from "../db/queue/claims.ts";
import { type EventContent, loadContents } from "../db/queue/event-contents.ts";

/** How much the average size of a payload follows the last ones. */
const AVERAGE_WEIGHT = 0.2;

/**
 * The payloads of the deliveries that a process holds: one each, however many deliveries carry it, from the first claim to
 * the last result, and together within a number of bytes.
 */
export class EventContents {
  readonly #db: Db;
  readonly #maxBytes: number;
  readonly #held = new Map<string, { content: EventContent; uses: number }>();
  /** One load at a time: each takes all the room that is left. */
  readonly #limitLoads: LimitFunction = pLimit(1);
  #bytes = 0;
  #averageBytes = 1_000;

  /** @param maxBytes payloads held, as characters; one larger payload is held alone */
  constructor(db: Db, maxBytes: number) {
    this.#db = db;
    this.#maxBytes = maxBytes;
  }

  /** Deliveries that there is room for, by the size of recent payloads. */
  get room(): number {
    if (this.#bytes === 0) return Math.max(1, Math.floor(this.#maxBytes / this.#averageBytes));
    return Math.max(0, Math.floor((this.#maxBytes - this.#bytes) / this.#averageBytes));
  }

  /**
   * Holds what the deliveries carry; answers those for which there is no room. `release` is to be called for the others. On
   * an error it holds nothing of them.
   */
  async hold(deliveries: readonly ClaimedDelivery[]): Promise<ClaimedDelivery[]> {
    const missing = deliveries.filter((delivery) => !this.#use(delivery));
    if (missing.length === 0) return [];
    try {
      return await this.#limitLoads(async () => {
        await this.#load(missing.map(({ eventId }) => eventId).filter((id) => !this.#held.has(id)));
        return missing.filter((delivery) => !this.#use(delivery));
      });
    } catch (error) {
      const unheld = new Set(missing);
      for (const delivery of deliveries) if (!unheld.has(delivery)) this.release(delivery);
      throw error;
    }
  }

  async #load(eventIds: string[]): Promise<void> {
    if (eventIds.length === 0) return;
    const maxBytes = Math.max(0, this.#maxBytes - this.#bytes);
    const loaded = await untilAnswered(() =>
      loadContents(this.#db, eventIds, { maxBytes, alone: this.#bytes === 0 }),
    );
    for (const [eventId, content] of loaded) this.#add(eventId, content);
  }

  /** What a held delivery carries. */
  of({ eventId }: ClaimedDelivery): EventContent {
    return (this.#held.get(eventId) as { content: EventContent }).content;
  }

  /** To be called once for each delivery that was held. */
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
