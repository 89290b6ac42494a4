import { DomainError } from "../../../contract/errors.ts";

/** The maximum number of waiting trials of a key. */
export const MAX_WAITING_PER_KEY = 20;
const RETRY_AFTER_MS = 1_000;

/**
 * Limits the trials that run at the same time, in total and per key. The others wait, and the next one is of another key if
 * another key waits.
 */
export class TrialQueue {
  readonly #atOnce: number;
  readonly #perKey: number;
  readonly #what: string;
  #running = 0;
  /** The number of running trials by key. */
  readonly #runningOf = new Map<string, number>();
  /** What starts waiting trials, by key, in the order of turns. */
  readonly #waiting = new Map<string, Set<() => void>>();

  /**
   * @param what the trials, for the error message
   * @param atOnce the maximum number of running trials
   * @param perKey the maximum number of running trials of a key. Defaults to `atOnce`
   */
  constructor(what: string, atOnce: number, perKey = atOnce) {
    this.#what = what;
    this.#atOnce = atOnce;
    this.#perKey = perKey;
  }

  /**
   * Runs a trial when it is its turn.
   *
   * @param signal ends the wait
   * @throws DomainError RESOURCE_EXHAUSTED if MAX_WAITING_PER_KEY trials of the key wait
   */
  async run<T>(keyId: string, signal: AbortSignal, trial: () => Promise<T>): Promise<T> {
    signal.throwIfAborted();
    if (this.#mayStart(keyId)) this.#count(keyId, 1);
    else await this.#turn(keyId, signal);
    try {
      return await trial();
    } finally {
      this.#count(keyId, -1);
      this.#startNext();
    }
  }

  #mayStart(keyId: string): boolean {
    return this.#running < this.#atOnce && (this.#runningOf.get(keyId) ?? 0) < this.#perKey;
  }

  #count(keyId: string, trials: 1 | -1): void {
    const ofKey = (this.#runningOf.get(keyId) ?? 0) + trials;
    this.#running += trials;
    if (ofKey > 0) this.#runningOf.set(keyId, ofKey);
    else this.#runningOf.delete(keyId);
  }

  #turn(keyId: string, signal: AbortSignal): Promise<void> {
    const waiting = this.#waiting.get(keyId) ?? new Set();
    if (waiting.size >= MAX_WAITING_PER_KEY) {
      throw new DomainError(
        "RESOURCE_EXHAUSTED",
        `${MAX_WAITING_PER_KEY} ${this.#what} of this API key wait, the maximum; retry when some have ended`,
        { reason: "LIMIT_REACHED", retryAfterMs: RETRY_AFTER_MS },
      );
    }
    this.#waiting.set(keyId, waiting);
    return new Promise((resolve, reject) => {
      const leave = () => {
        waiting.delete(start);
        if (waiting.size === 0) this.#waiting.delete(keyId);
        signal.removeEventListener("abort", cancel);
      };
      const start = () => {
        leave();
        resolve();
      };
      const cancel = () => {
        leave();
        reject(signal.reason);
      };
      waiting.add(start);
      signal.addEventListener("abort", cancel);
    });
  }

  /** Starts the oldest trial of the key whose turn it is, in place of one that has ended. */
  #startNext(): void {
    for (const [keyId, waiting] of this.#waiting) {
      if (!this.#mayStart(keyId)) continue;
      this.#waiting.delete(keyId);
      if (waiting.size > 1) this.#waiting.set(keyId, waiting);
      const [start] = waiting;
      this.#count(keyId, 1);
      start?.();
      return;
    }
  }
}
