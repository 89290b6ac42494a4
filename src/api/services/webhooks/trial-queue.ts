import { DomainError } from "../../../contract/errors.ts";

/** The maximum number of waiting trials of a key. */
export const MAX_WAITING_PER_KEY = 20;
const RETRY_AFTER_MS = 1_000;

/** Limits the trials that run at the same time. The others wait, and the next one is of another key if another key waits. */
export class TrialQueue {
  readonly #atOnce: number;
  #running = 0;
  /** What starts waiting trials, by key, in the order of turns. */
  readonly #waiting = new Map<string, Set<() => void>>();

  constructor(atOnce: number) {
    this.#atOnce = atOnce;
  }

  /**
   * Runs a trial when it is its turn.
   *
   * @param signal ends the wait
   * @throws DomainError RESOURCE_EXHAUSTED if MAX_WAITING_PER_KEY trials of the key wait
   */
  async run<T>(keyId: string, signal: AbortSignal, trial: () => Promise<T>): Promise<T> {
    signal.throwIfAborted();
    if (this.#running < this.#atOnce) this.#running += 1;
    else await this.#turn(keyId, signal);
    try {
      return await trial();
    } finally {
      this.#startNext();
    }
  }

  #turn(keyId: string, signal: AbortSignal): Promise<void> {
    const waiting = this.#waiting.get(keyId) ?? new Set();
    if (waiting.size >= MAX_WAITING_PER_KEY) {
      throw new DomainError(
        "RESOURCE_EXHAUSTED",
        `${MAX_WAITING_PER_KEY} filters tried with this API key wait, the maximum; retry when some have been tried`,
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
    const [next] = this.#waiting;
    if (!next) {
      this.#running -= 1;
      return;
    }
    const [keyId, waiting] = next;
    this.#waiting.delete(keyId);
    if (waiting.size > 1) this.#waiting.set(keyId, waiting);
    const [start] = waiting;
    start?.();
  }
}
