import type { Counter, Tracer } from "@opentelemetry/api";
import type { DomainError } from "../../contract/errors.ts";
import { type Db, gathering, isTransient } from "../../lib/pg/index.ts";
import { inBatch } from "../../metrics/index.ts";
import { type KeyReused, type NewEvent, type Published, publishEvents } from "../publish.ts";
import { createKeyReuse } from "./key-reuse.ts";

/** Stores one event in a batch with concurrent ones. Rejections are returned, not thrown. */
export type Publisher = (event: NewEvent) => Promise<Published | DomainError>;

type Result = Published | DomainError;

/** The maximum number of events per statement. */
const MAX_GROUP = 500;
/** The size of a statement from which no more events are added, in bytes. */
const MAX_GROUP_BYTES = 4 * 1024 * 1024;
/** The maximum number of concurrent statements per process. */
const MAX_CONCURRENT_GROUPS = 3;
/** The cost of an event and a delivery in addition to the payload, in bytes. */
const ROW_BYTES = 512;

/**
 * Publishes in batches: while one is written, the next one fills. Concurrent callers share a statement and its
 * commit; a single caller does not wait.
 *
 * @param published counts the events that were stored
 * @param onQueued told after each group that queued deliveries
 * @param tracer traces each statement, with links to the calls whose events it stores
 */
export function createPublisher(
  db: Db,
  published: Counter,
  onQueued: () => void = () => {},
  tracer?: Tracer,
): Publisher {
  /** Deliveries of the last event of each process, which tells how much work the next will be. */
  const fanOut = new Map<number, number>();

  async function write(events: readonly NewEvent[]): Promise<(Published | KeyReused)[]> {
    const traces = tracer ? events.map(({ traceparent = null }) => traceparent) : [];
    const results = await inBatch(tracer, "publish_events", traces, () => publishEvents(db, events));
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

  /** Writes the batch. If an event cannot be written, only that one fails: the others are written without it. */
  async function writeOrSplit(events: readonly NewEvent[]): Promise<(Result | Promise<Result>)[]> {
    try {
      const results = await write(events);
      return results.map((result, index) => told(events[index] as NewEvent, result));
    } catch (error) {
      if (events.length === 1 || isTransient(error)) throw error;
    }
    const alone: Promise<Result>[] = [];
    for (const event of events) {
      const result = write([event]).then(([only]) => told(event, only as Published | KeyReused));
      alone.push(result);
      await result.catch(() => {});
    }
    return alone;
  }

  const keyReuse = createKeyReuse(db);
  /** A promise for a reused key, so that the other events of the batch do not wait for the comparison. */
  const told = (event: NewEvent, result: Published | KeyReused): Result | Promise<Result> =>
    "firstEventId" in result ? keyReuse(event, result.firstEventId) : result;

  return gathering(writeOrSplit, {
    most: MAX_GROUP,
    atOnce: MAX_CONCURRENT_GROUPS,
    maxWeight: MAX_GROUP_BYTES,
    weigh: ({ payload, process }) => payload.length + ROW_BYTES * (1 + (fanOut.get(process) ?? 1)),
  });
}
