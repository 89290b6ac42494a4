import { DomainError } from "../contract/errors.ts";

/** The maximum number of a key's tasks that wait, unless a queue has another. */
export const MAX_WAITING_PER_KEY = 20;
const RETRY_AFTER_MS = 1_000;

/** The limits of a queue. */
interface QueueLimits {
  /** The maximum number of running tasks. */
  atOnce: number;
  /** The maximum number of running tasks of a key. Defaults to `atOnce`. */
  perKey?: number;
  /** The maximum number of waiting tasks of a key. Defaults to 20 (MAX_WAITING_PER_KEY). */
  maxWaiting?: number;
}

/**
 * Limits the tasks that run at the same time, in total and per key. The others wait. The next one is of the key with the fewest
 * running tasks, and of those with as few, of each in turn.
 */
export class FairQueue {
  readonly #what: string;
  readonly #atOnce: number;
  readonly #perKey: number;
  readonly #maxWaiting: number;
  #running = 0;
  /** The number of running tasks by key. */
  readonly #runningOf = new Map<string, number>();
  /** What starts waiting tasks, by key, in the order of turns. */
  readonly #waiting = new Map<string, Set<() => void>>();

  /** @param what the tasks, for the error message: `filter trials` */
  constructor(what: string, { atOnce, perKey = atOnce, maxWaiting = MAX_WAITING_PER_KEY }: QueueLimits) {
    this.#what = what;
    this.#atOnce = atOnce;
    this.#perKey = perKey;
    this.#maxWaiting = maxWaiting;
  }

  /**
   * Runs a task when it is its turn.
   *
   * @param signal ends the wait; undefined: nothing does
   * @param options.mayRefuse false: the task waits, however many of the key wait. Defaults to true
   * @throws DomainError RESOURCE_EXHAUSTED if the maximum number of the key's tasks wait
   */
  async run<T>(
    keyId: string,
    signal: AbortSignal | undefined,
    task: () => Promise<T>,
    { mayRefuse = true }: { mayRefuse?: boolean } = {},
  ): Promise<T> {
    signal?.throwIfAborted();
    if (this.#mayStart(keyId)) this.#count(keyId, 1);
    else await this.#turn(keyId, signal, mayRefuse);
    try {
      return await task();
    } finally {
      this.#count(keyId, -1);
      this.#startNext();
    }
  }

  #mayStart(keyId: string): boolean {
    return this.#running < this.#atOnce && (this.#runningOf.get(keyId) ?? 0) < this.#perKey;
  }

  #count(keyId: string, tasks: 1 | -1): void {
    const ofKey = (this.#runningOf.get(keyId) ?? 0) + tasks;
    this.#running += tasks;
    if (ofKey > 0) this.#runningOf.set(keyId, ofKey);
    else this.#runningOf.delete(keyId);
  }

  #turn(keyId: string, signal: AbortSignal | undefined, mayRefuse: boolean): Promise<void> {
    const waiting = this.#waiting.get(keyId) ?? new Set();
    if (mayRefuse && waiting.size >= this.#maxWaiting) {
      throw new DomainError(
        "LIMIT_REACHED",
        `${this.#maxWaiting} ${this.#what} of this API key wait, the maximum; retry when some have ended`,
        { retryAfterMs: RETRY_AFTER_MS },
      );
    }
    this.#waiting.set(keyId, waiting);
    return new Promise((resolve, reject) => {
      const leave = () => {
        waiting.delete(start);
        if (waiting.size === 0) this.#waiting.delete(keyId);
        signal?.removeEventListener("abort", cancel);
      };
      const start = () => {
        leave();
        resolve();
      };
      const cancel = () => {
        leave();
        reject(signal?.reason);
      };
      waiting.add(start);
      signal?.addEventListener("abort", cancel);
    });
  }

  /** Starts the oldest task of the key whose turn it is, in place of one that has ended. */
  #startNext(): void {
    let next: [keyId: string, waiting: Set<() => void>] | undefined;
    let fewest = this.#perKey;
    for (const each of this.#waiting) {
      const running = this.#runningOf.get(each[0]) ?? 0;
      if (running < fewest) [next, fewest] = [each, running];
    }
    if (!next) return;
    const [keyId, waiting] = next;
    this.#waiting.delete(keyId);
    if (waiting.size > 1) this.#waiting.set(keyId, waiting);
    const [start] = waiting;
    this.#count(keyId, 1);
    start?.();
  }
}
