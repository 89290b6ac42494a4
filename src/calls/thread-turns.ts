import { FairQueue } from "./fair-queue.ts";

/** The time for which long work may take the thread without a pause as long after it, in milliseconds. */
const SHORT_MS = 10;
/** The time after which work with many parts takes another turn, in milliseconds. */
const SLICE_MS = 5;
/** The size from which the work on a message or payload is long, in bytes: it takes the thread about a millisecond, or more. */
export const LONG_WORK_BYTES = 8_192;

const shortWork = new FairQueue("turns", { atOnce: 1 });
const longWork = new FairQueue("turns", { atOnce: 1 });

/**
 * Resolves when it is the caller's turn to do work that takes the thread little time, such as to continue with a row of the database.
 * One key's work is done per turn of the event loop, so that the work of many calls of a key delays no other key's.
 *
 * The work ends when it waits for something.
 */
export function shortTurn(keyId: string): Promise<void> {
  return turnOf(shortWork, keyId, Number.POSITIVE_INFINITY);
}

/**
 * The same for work that may take long, such as to read a large message or to convert the rows of a list. Other work has a turn of
 * the event loop after it, and as long as it took if that was more than 10 ms.
 */
export function longTurn(keyId: string): Promise<void> {
  return turnOf(longWork, keyId, SHORT_MS);
}

/** @param pauseFromMs the time from which the work is followed by as long a pause */
function turnOf(queue: FairQueue, keyId: string, pauseFromMs: number): Promise<void> {
  return new Promise((resolve) => {
    const work = () => workedOn(resolve, pauseFromMs);
    void queue.run(keyId, undefined, work, { mayRefuse: false });
  });
}

/** Starts work. Resolves when other work may start. */
function workedOn(start: () => void, pauseFromMs: number): Promise<void> {
  const began = performance.now();
  start();
  return new Promise((resolve) => {
    // Work that waits for nothing is done by then.
    setImmediate(() => {
      const tookMs = performance.now() - began;
      if (tookMs < pauseFromMs) resolve();
      else setTimeout(resolve, tookMs);
    });
  });
}

/**
 * Returns a function that work with many parts calls between them: after 5 ms, it takes another turn.
 *
 * @returns a function that returns undefined if the work may continue at once
 */
export function slices(keyId: string): () => Promise<void> | undefined {
  let end = performance.now() + SLICE_MS;
  const next = async () => {
    await longTurn(keyId);
    end = performance.now() + SLICE_MS;
  };
  return () => (performance.now() < end ? undefined : next());
}
