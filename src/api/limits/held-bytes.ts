import { LRUCache } from "lru-cache";
import { DomainError } from "../../contract/errors.ts";

/** The maximum time a call waits for memory before it is rejected, in milliseconds. */
const MAX_WAIT_MS = 5_000;

interface Waiter {
  bytes: number;
  enter: () => void;
}

/**
 * Limits the memory of request messages over all calls: received and decompressed bytes. A call without room waits,
 * which pauses reading from its connection.
 */
export class HeldBytes {
  readonly #max: number;
  readonly #messages: string;
  #held = 0;
  readonly #waiting = new Set<Waiter>();

  /**
   * @param max the limit, in bytes
   * @param messages the messages that it holds, for its error: `messages of all calls`
   */
  constructor(max: number, messages: string) {
    this.#max = max;
    this.#messages = messages;
  }

  /** Creates the account of one call. */
  open(): HeldCall {
    return new HeldCall(this);
  }

  /** The number of bytes held now. */
  get held(): number {
    return this.#held;
  }

  /**
   * @internal Used by HeldCall. Takes room now, or rejects if there is none by then.
   *
   * @param until the time until which it waits, by `performance.now`; undefined to take room before waiting calls, or none
   */
  take(bytes: number, until: number | undefined): Promise<void> | undefined {
    if ((until === undefined || this.#waiting.size === 0) && this.#fits(bytes)) {
      this.#held += bytes;
      return undefined;
    }
    if (until === undefined) return Promise.reject(this.#usedUp());
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#waiting.delete(waiter);
        // A later waiter may need less.
        this.#admit();
        reject(this.#usedUp());
      }, until - performance.now());
      const enter = () => {
        clearTimeout(timer);
        resolve();
      };
      const waiter = { bytes, enter };
      this.#waiting.add(waiter);
    });
  }

  /** @internal Used by HeldCall. */
  give(bytes: number): void {
    this.#held -= bytes;
    this.#admit();
  }

  #usedUp(): DomainError {
    return new DomainError(
      "LIMIT_REACHED",
      `the ${this.#messages} that are being read leave no room for this one in their ${this.#max} bytes; send it later`,
      { retryAfterMs: 1_000 },
    );
  }

  /** Whether bytes fit. A single message always fits if nothing else is held. */
  #fits(bytes: number): boolean {
    return this.#held === 0 || this.#held + bytes <= this.#max;
  }

  #admit(): void {
    for (const waiter of this.#waiting) {
      if (!this.#fits(waiter.bytes)) return;
      this.#waiting.delete(waiter);
      this.#held += waiter.bytes;
      waiter.enter();
    }
  }
}

/** The bytes held by one call. */
export class HeldCall {
  readonly #all: HeldBytes;
  #share: HeldCall | undefined;
  #held = 0;
  #closed = false;

  constructor(all: HeldBytes) {
    this.#all = all;
  }

  /** From now on, takes the same room in the account of the call's key first. */
  within(share: HeldCall): void {
    this.#share = share;
    if (this.#closed) share.close();
  }

  /**
   * Takes room for bytes of this call; undefined if it is available immediately. A call that has ended takes none,
   * because its buffered data is dropped. A call that holds bytes does not wait for more, because such calls would
   * deadlock.
   *
   * @param until the time until which it waits, by `performance.now`. Defaults to MAX_WAIT_MS from now
   * @throws DomainError RESOURCE_EXHAUSTED with a retry delay if there is no room in time
   */
  hold(bytes: number, until: number = performance.now() + MAX_WAIT_MS): Promise<void> | undefined {
    const share = this.#share;
    const hold = () =>
      this.#hold(bytes, until)?.catch((error: unknown) => {
        share?.release(bytes);
        throw error;
      });
    const waiting = share?.hold(bytes, until);
    return waiting ? waiting.then(hold) : hold();
  }

  #hold(bytes: number, until: number): Promise<void> | undefined {
    if (this.#closed) return undefined;
    const waiting = this.#all.take(bytes, this.#held > 0 ? undefined : until);
    if (!waiting) {
      this.#held += bytes;
      return undefined;
    }
    return waiting.then(() => {
      if (this.#closed) this.#all.give(bytes);
      else this.#held += bytes;
    });
  }

  /** The number of bytes held now. */
  get held(): number {
    return this.#held;
  }

  /** Releases the given number of bytes, or what a call that has ended still holds of them. Defaults to all. */
  release(bytes: number = this.#held): void {
    const given = Math.min(bytes, this.#held);
    if (given === 0) return;
    this.#held -= given;
    this.#all.give(given);
    this.#share?.release(given);
  }

  /** Releases everything, and cancels a pending wait. */
  close(): void {
    this.#closed = true;
    this.release();
    this.#share?.close();
  }
}

/** The maximum number of keys whose accounts are kept. The calls of others that are open keep theirs. */
const MAX_ACCOUNTS = 10_000;

/** Limits the memory of the request messages of each key, so that every key leaves room for the others. */
export class KeyShares {
  readonly #accounts: LRUCache<string, HeldBytes>;

  /** @param max the limit of each key, in bytes */
  constructor(max: number) {
    const memoMethod = () => new HeldBytes(max, "messages of this API key");
    this.#accounts = new LRUCache({ max: MAX_ACCOUNTS, memoMethod });
  }

  /** Creates the account of one call of a key. */
  open(keyId: string): HeldCall {
    return this.#accounts.memo(keyId).open();
  }
}
