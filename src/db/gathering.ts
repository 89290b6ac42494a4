import { onBehalfOfAll } from "./connections/call-signal.ts";

/** How calls are gathered. */
export interface GatheringOptions<T> {
  /** Most items of a group. */
  most: number;
  /** Most groups under way at once. */
  atOnce: number;
  /** A group that has come to this weight takes no more items; without it only their number counts. */
  maxWeight?: number;
  weigh?: (item: T) => number;
}

/**
 * Turns work that costs about the same for one item as for many into calls with one item each: what is asked for
 * while a group is under way waits and goes with the next one. Nothing waits for a timer: with no group under way
 * one starts as soon as what has arrived is read.
 *
 * An item never joins a group that has begun, so each call sees the state of the world after it was made.
 *
 * @param perform does a whole group and answers a result for each item, in their order, where a promise may fail
 *   for its item alone; when `perform` itself fails, so does every call of the group
 */
export function gathering<T, R>(
  perform: (items: readonly T[]) => Promise<readonly (R | PromiseLike<R>)[]>,
  { most, atOnce, maxWeight = Number.POSITIVE_INFINITY, weigh = () => 0 }: GatheringOptions<T>,
): (item: T) => Promise<R> {
  const waiting: Waiting<T, R>[] = [];
  let first = 0;
  let underWay = 0;
  let planned = false;

  function plan(): void {
    if (planned || underWay >= atOnce || first === waiting.length) return;
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
    // Whose call happened to start the group must not matter: its end would be the others' too.
    const results = await onBehalfOfAll(() => perform(group.map(({ item }) => item)));
    for (const [index, { resolve }] of group.entries()) resolve(results[index] as R);
  } catch (error) {
    for (const { reject } of group) reject(error);
  }
}
