import { onBehalfOfAll } from "../../../db/connections/call-signal.ts";

/** A reading is kept this many times as long as it took, so that it never takes more than a tenth of the time. */
const REST = 10;

/**
 * Reads for many callers at once: who asks while a reading is under way, or is fresh, shares it. One that fails is
 * shared by those who waited for it, and not kept.
 *
 * @param freshMs how long a reading is fresh at least, in milliseconds
 */
export function sharedReading<T>(read: () => Promise<T>, freshMs: number): () => Promise<T> {
  let current: Promise<T> | undefined;
  let staleAt = 0;
  return () => {
    if (current && performance.now() < staleAt) return current;
    const started = performance.now();
    staleAt = Number.POSITIVE_INFINITY;
    // Whose call happened to start it must not matter: its end would be the others' too.
    const reading = onBehalfOfAll(read);
    current = reading;
    reading.then(
      () => {
        const now = performance.now();
        staleAt = now + Math.max(freshMs, REST * (now - started));
      },
      () => {
        staleAt = 0;
      },
    );
    return reading;
  };
}

/** Readings that are kept at once; beyond this the oldest is forgotten. */
const MAX_READINGS = 1_000;

/**
 * A `sharedReading` for each thing that is asked for, so that only those who ask for the same share one.
 *
 * @param nameOf the same for what is the same
 * @param freshMs how long a reading is fresh at least, in milliseconds
 */
export function sharedReadings<K, T>(
  read: (asked: K) => Promise<T>,
  nameOf: (asked: K) => string,
  freshMs: number,
): (asked: K) => Promise<T> {
  const readings = new Map<string, () => Promise<T>>();
  return (asked) => {
    const name = nameOf(asked);
    let reading = readings.get(name);
    if (!reading) {
      reading = sharedReading(() => read(asked), freshMs);
      readings.set(name, reading);
      const [oldest] = readings.keys();
      if (readings.size > MAX_READINGS && oldest !== undefined) readings.delete(oldest);
    }
    return reading();
  };
}
