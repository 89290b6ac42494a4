import type { Counter } from "@opentelemetry/api";
import type { DomainError } from "../../../contract/errors.ts";
import type { Db } from "../../../db/database.ts";
import { type KeyReused, type NewEvent, type Published, publishEvents } from "../../../db/events/publish.ts";
import { isTransient } from "../../../db/faults.ts";
import { gathering } from "../../../db/gathering.ts";
import { createKeyReuse } from "./key-reuse.ts";

/** Stores one event, together with whatever else is published at the moment; a refusal is an answer, not thrown. */
export type Publisher = (event: NewEvent) => Promise<Published | DomainError>;

type Result = Published | KeyReused | Promise<Published | KeyReused>;

/** Most events of one statement. */
const MAX_GROUP = 500;
/** A statement that writes about this many bytes takes no more events. */
const MAX_GROUP_BYTES = 4 * 1024 * 1024;
/** Statements under way at once, a process. */
const GROUPS_AT_ONCE = 2;
/** What an event and a delivery add to a statement's work beside the payload, in bytes. */
const ROW_BYTES = 512;

/**
 * Publishes in groups: while one is written the next gathers. Many callers thus share a statement and its commit,
 * and one alone waits for nobody.
 *
 * @param published counts the events that were stored
 * @param onQueued told after each group that queued deliveries
 */
export function createPublisher(db: Db, published: Counter, onQueued: () => void = () => {}): Publisher {
  /** Deliveries of the last event of each process, which tells how much work the next will be. */
  const fanOut = new Map<number, number>();

  async function write(events: readonly NewEvent[]): Promise<(Published | KeyReused)[]> {
    const results = await publishEvents(db, events);
    let queued = 0;
    let stored = 0;
    for (const [index, result] of results.entries()) {
      if ("queued" in result && !result.duplicate) {
        fanOut.set((events[index] as NewEvent).process, result.queued);
        queued += result.queued;
        stored += 1;
      }
    }
    if (stored > 0) published.add(stored);
    if (queued > 0) onQueued();
    return results;
  }

  /** An event that cannot be written fails alone: the others of its group are written without it. */
  async function writeOrSplit(events: readonly NewEvent[]): Promise<Result[]> {
    try {
      return await write(events);
    } catch (error) {
      if (events.length === 1 || isTransient(error)) throw error;
    }
    const alone: Result[] = [];
    for (const event of events) {
      const result = write([event]).then(([only]) => only as Published | KeyReused);
      alone.push(result);
      await result.catch(() => {});
    }
    return alone;
  }

  const publish = gathering(writeOrSplit, {
    most: MAX_GROUP,
    atOnce: GROUPS_AT_ONCE,
    maxWeight: MAX_GROUP_BYTES,
    weigh: ({ payload, process }) => payload.length + ROW_BYTES * (1 + (fanOut.get(process) ?? 1)),
  });
  const keyReuse = createKeyReuse(db);
  // After the group, whose other events do not wait for the comparison.
  return async (event) => {
    const result = await publish(event);
    return "firstEventId" in result ? keyReuse(event, result.firstEventId) : result;
  };
}
