import { DomainError } from "../../contract/errors.ts";

/** How long a call waits for memory before it is refused, in milliseconds. */
const MAX_WAIT_MS = 5_000;

interface Waiter {
  bytes: number;
  enter: () => void;
}

/**
 * Bounds the memory that request messages take, over all calls: bytes received, and bytes decompressed from them. A call
 * that finds no room waits, which stops reading from its connection.
 */
export class HeldBytes {
  readonly #max: number;
  #held = 0;
  readonly #waiting: Waiter[] = [];

  /** @param max in bytes */
  constructor(max: number) {
    this.#max = max;
  }

  /** Starts the account of one call. */
  open(): HeldCall {
    return new HeldCall(this);
  }

  /** Bytes held now. */
  get held(): number {
    return this.#held;
  }

  /** @internal Used by HeldCall. */
  take(bytes: number): Promise<void> | undefined {
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
        // A later waiter may ask for less.
        this.#admit();
        reject(busy());
      }, MAX_WAIT_MS);
      this.#waiting.push(waiter);
    });
  }

  /** @internal Used by HeldCall. Takes room if there is some, before those that wait. */
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

  /** A single message always fits when nothing else is held, whatever its size. */
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

/** What one call holds. */
export class HeldCall {
  readonly #all: HeldBytes;
  #held = 0;
  #closed = false;

  constructor(all: HeldBytes) {
    this.#all = all;
  }

  /**
   * Takes room for bytes of this call; undefined when there is room at once. A call that has ended takes none: what its
   * reader still finds in its buffers is dropped with it. A call that holds something does not wait for more: calls that
   * hold and wait would wait for each other.
   *
   * @throws DomainError RESOURCE_EXHAUSTED with a retry delay when there is no room in time, or for more
   */
  hold(bytes: number): Promise<void> | undefined {
    if (this.#closed) return undefined;
    if (this.#held > 0) {
      if (!this.#all.takeNow(bytes)) return Promise.reject(busy());
      this.#held += bytes;
      return undefined;
    }
    const waiting = this.#all.take(bytes);
    if (!waiting) {
      this.#held += bytes;
      return undefined;
    }
    return waiting.then(() => {
      if (this.#closed) this.#all.give(bytes);
      else this.#held += bytes;
    });
  }

  /** Gives room back: so many bytes, or all that the call holds. */
  release(bytes: number = this.#held): void {
    const given = Math.min(bytes, this.#held);
    if (given === 0) return;
    this.#held -= given;
    this.#all.give(given);
  }

  /** Gives everything back, also what the call is still waiting for. */
  close(): void {
    this.#closed = true;
    this.release();
  }
}

function busy(): DomainError {
  return new DomainError(
    "RESOURCE_EXHAUSTED",
    "the service is reading too many large messages at once; send this one again later",
    { reason: "LIMIT_REACHED", retryAfterMs: 1_000 },
  );
}
