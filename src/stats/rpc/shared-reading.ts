import { LRUCache } from "lru-cache";
import { onBehalfOfAll, turnsOfCall } from "../../lib/pg/index.ts";

/** The cache time of a read, as a multiple of its duration: reads take at most a tenth of the time. */
const CACHE_TIME_FACTOR = 10;
/** The time for which callers join a read that has begun, in milliseconds: longer than any read takes. */
const MAX_SHARED_MS = 60_000;

/**
 * Shares a read among concurrent callers and caches its result. An error is shared by the callers that waited for it,
 * and not cached.
 *
 * @param freshMs the minimum cache time, in milliseconds
 * @param now a monotonic clock by which results get old, in milliseconds
 */
export function sharedReading<T>(
  read: () => Promise<T>,
  freshMs: number,
  now = performance.now.bind(performance),
): () => Promise<T> {
  let current: Promise<T> | undefined;
  let staleAt = 0;
  return () => {
    if (current && now() < staleAt) return current;
    const started = performance.now();
    staleAt = now() + MAX_SHARED_MS;
    // The read must not be cancelled when the call that happened to start it ends.
    const reading = onBehalfOfAll(read, turnsOfCall());
    current = reading;
    reading.then(
      () => {
        const tookMs = performance.now() - started;
        if (current === reading) staleAt = now() + Math.max(freshMs, CACHE_TIME_FACTOR * tookMs);
      },
      () => {
        if (current === reading) staleAt = 0;
      },
    );
    return reading;
  };
}

/** The maximum number of cached reads. Beyond it, the least recently used one is removed. */
const MAX_READINGS = 1_000;

/**
 * A `sharedReading` per key, so that only requests for the same data share one.
 *
 * @param nameOf the cache key
 * @param freshMs the minimum cache time, in milliseconds
 * @param now a monotonic clock, in milliseconds
 */
export function sharedReadings<K, T>(
  read: (asked: K) => Promise<T>,
  nameOf: (asked: K) => string,
  freshMs: number,
  now = performance.now.bind(performance),
): (asked: K) => Promise<T> {
  const readings = new LRUCache<string, () => Promise<T>>({ max: MAX_READINGS });
  return (asked) => {
    const name = nameOf(asked);
    const reading = readings.get(name) ?? sharedReading(() => read(asked), freshMs, now);
    readings.set(name, reading);
    return reading();
  };
}
