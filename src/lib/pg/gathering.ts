import { onBehalfOfAll } from "./call-signal.ts";

/** Options for batching. */
export interface GatheringOptions<T> {
  /** The maximum number of items per batch. */
  most: number;
  /** The maximum number of concurrent batches. */
  atOnce: number;
  /** The minimum number of waiting items for a batch to start while another one is in progress. Defaults to 1. */
  minBeside?: number;
  /**
   * The total weight of items from which a batch is full; its last item may exceed it. Without it, only the number of items
   * counts.
   */
  maxWeight?: number;
  /** Returns the weight of an item, in the unit of `maxWeight`. Defaults to 0. */
  weigh?: (item: T) => number;
}

/**
 * Turns a batch operation into a function for single items. Items wait while `atOnce` batches are in progress, or while
 * too few items wait for another batch (`minBeside`), and then share the next batch. There is no timer: otherwise a batch
 * starts as soon as the current I/O events have been read.
 *
 * An item never joins a batch in progress, so its result never reflects a state from before the call.
 *
 * @param perform processes a batch and returns a result for each item, in order; a rejected promise among them fails
 *   only its item. If `perform` itself fails, all calls of the batch fail
 */
export function gathering<T, R>(
  perform: (items: readonly T[]) => Promise<readonly (R | PromiseLike<R>)[]>,
  { most, atOnce, minBeside = 1, maxWeight = Number.POSITIVE_INFINITY, weigh = () => 0 }: GatheringOptions<T>,
): (item: T) => Promise<R> {
  const waiting: Waiting<T, R>[] = [];
  let first = 0;
  let underWay = 0;
  let planned = false;

  function plan(): void {
    const least = underWay > 0 ? minBeside : 1;
    if (planned || underWay >= atOnce || waiting.length - first < least) return;
    planned = true;
    setImmediate(start);
  }

  function start(): void {
    planned = false;
    const group = take();
    underWay += 1;
    settle(group, perform).finally(() => {
      underWay -= 1;
      plan();
    });
    plan();
  }

  function take(): Waiting<T, R>[] {
    const from = first;
    let weight = 0;
    while (first < waiting.length && first - from < most && weight < maxWeight) {
      weight += weigh((waiting[first] as Waiting<T, R>).item);
      first += 1;
    }
    const group = waiting.slice(from, first);
    if (first === waiting.length) {
      waiting.length = first = 0;
    } else if (first > 1_024 && first * 2 > waiting.length) {
      waiting.splice(0, first);
      first = 0;
    }
    return group;
  }

  return (item) =>
    new Promise((resolve, reject) => {
      waiting.push({ item, resolve, reject });
      plan();
    });
}

interface Waiting<T, R> {
  item: T;
  resolve: (result: R | PromiseLike<R>) => void;
  reject: (error: unknown) => void;
}

async function settle<T, R>(
  group: readonly Waiting<T, R>[],
  perform: (items: readonly T[]) => Promise<readonly (R | PromiseLike<R>)[]>,
): Promise<void> {
  try {
    // A batch must not be cancelled when the call that happened to start it ends.
    const results = await onBehalfOfAll(() => perform(group.map(({ item }) => item)));
    for (const [index, { resolve }] of group.entries()) resolve(results[index] as R);
  } catch (error) {
    for (const { reject } of group) reject(error);
  }
}
