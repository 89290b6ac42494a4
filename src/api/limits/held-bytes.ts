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
  readonly #waiting: Waiter[] = [];

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

  /** @internal Used by HeldCall. @param until the time until which it waits, by `performance.now` */
  take(bytes: number, until: number): Promise<void> | undefined {
    if (this.#waiting.length === 0 && this.#fits(bytes)) {
      this.#held += bytes;
      return undefined;
    }
    return new Promise((resolve, reject) => {
      const waiter: Waiter = {
        bytes,
        enter: () => {
          clearTimeout(timer);
          resolve();
        },
      };
      const timer = setTimeout(() => {
        const place = this.#waiting.indexOf(waiter);
        if (place >= 0) this.#waiting.splice(place, 1);
        // A later waiter may need less.
        this.#admit();
        reject(this.usedUp());
      }, until - performance.now());
      this.#waiting.push(waiter);
    });
  }

  /** @internal Used by HeldCall. Takes room if available, before waiting calls. */
  takeNow(bytes: number): boolean {
    if (!this.#fits(bytes)) return false;
    this.#held += bytes;
    return true;
  }

  /** @internal Used by HeldCall. */
  give(bytes: number): void {
    this.#held -= bytes;
    this.#admit();
  }

  /** @internal Used by HeldCall. The error when bytes do not fit. */
  usedUp(): DomainError {
    return new DomainError(
      "RESOURCE_EXHAUSTED",
      `the ${this.#messages} that are being read leave no room for this one in their ${this.#max} bytes; send it later`,
      { reason: "LIMIT_REACHED", retryAfterMs: 1_000 },
    );
  }

  /** Whether bytes fit. A single message always fits if nothing else is held. */
  #fits(bytes: number): boolean {
    return this.#held === 0 || this.#held + bytes <= this.#max;
  }

  #admit(): void {
    for (let first = this.#waiting[0]; first && this.#fits(first.bytes); first = this.#waiting[0]) {
      this.#waiting.shift();
      this.#held += first.bytes;
      first.enter();
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
    const waiting = share?.hold(bytes, until);
    if (waiting) return waiting.then(() => this.#holdShared(bytes, until, share));
    return this.#holdShared(bytes, until, share);
  }

  #holdShared(bytes: number, until: number, share: HeldCall | undefined): Promise<void> | undefined {
    return this.#hold(bytes, until)?.catch((error: unknown) => {
      share?.release(bytes);
      throw error;
    });
  }

  #hold(bytes: number, until: number): Promise<void> | undefined {
    if (this.#closed) return undefined;
    if (this.#held > 0) {
      if (!this.#all.takeNow(bytes)) return Promise.reject(this.#all.usedUp());
      this.#held += bytes;
      return undefined;
    }
    const waiting = this.#all.take(bytes, until);
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

  /** Releases the given number of bytes. Defaults to all. */
  release(bytes: number = this.#held): void {
    const given = Math.min(bytes, this.#held);
    if (given === 0) return;
    this.#held -= given;
    this.#all.give(given);
    this.#share?.release(given);
  }

  /** Releases all bytes but the given number. */
  releaseAllBut(bytes: number): void {
    // A call that has ended holds less.
    this.release(Math.max(0, this.#held - bytes));
  }

  /** Releases everything, and cancels a pending wait. */
  close(): void {
    this.#closed = true;
    this.release();
    this.#share?.close();
  }
}

/** The number of accounts of keys from which those without bytes are removed. */
const MAX_ACCOUNTS = 10_000;

/** Limits the memory of the request messages of each key, so that every key leaves room for the others. */
export class KeyShares {
  readonly #max: number;
  readonly #accounts = new Map<string, HeldBytes>();

  /** @param max the limit of each key, in bytes */
  constructor(max: number) {
    this.#max = max;
  }

  /** Creates the account of one call of a key. */
  open(keyId: string): HeldCall {
    let account = this.#accounts.get(keyId);
    if (!account) {
      if (this.#accounts.size >= MAX_ACCOUNTS) this.#removeEmpty();
      account = new HeldBytes(this.#max, "messages of this API key");
      this.#accounts.set(keyId, account);
    }
    return account.open();
  }

  #removeEmpty(): void {
    for (const [keyId, { held }] of this.#accounts) if (held === 0) this.#accounts.delete(keyId);
  }
}
