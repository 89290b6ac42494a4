import type { Db } from "../db/database.ts";
import { untilAnswered } from "../db/faults.ts";
import type { ClaimedDelivery } from "../db/queue/claims.ts";
import { type EventContent, loadContents } from "../db/queue/event-contents.ts";

/** Stands for an event that is not stored, as after a partial restore: its deliveries fail, and hold up no others. */
const NOT_STORED: EventContent = { payload: null, userId: "" };

/** What the events carry that a flow's deliveries carry: each once, from the first delivery's claim to the last one's end. */
export class HeldContents {
  readonly #db: Db;
  readonly #held = new Map<string, { content: EventContent; uses: number }>();

  #length = 0;

  /** Characters of all bodies held. */
  get length(): number {
    return this.#length;
  }

  constructor(db: Db) {
    this.#db = db;
  }

  /** Loads what is not there yet. What is there is held at once: its last other user may end while the rest is loaded. */
  async hold(deliveries: readonly ClaimedDelivery[]): Promise<void> {
    const missing = deliveries.filter(({ eventId }) => {
      const held = this.#held.get(eventId);
      if (held) held.uses += 1;
      return held === undefined;
    });
    if (missing.length === 0) return;
    const ids = missing.map(({ eventId }) => eventId);
    const loaded = await untilAnswered(() => loadContents(this.#db, ids));
    for (const { eventId } of missing) {
      const content = loaded.get(eventId) ?? NOT_STORED;
      const held = this.#held.get(eventId);
      if (held) held.uses += 1;
      else {
        this.#held.set(eventId, { content, uses: 1 });
        this.#length += content.payload?.length ?? 0;
      }
    }
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
    this.#length -= held.content.payload?.length ?? 0;
  }
}
