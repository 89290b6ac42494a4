/** The effect of an attempt's outcome on a window. */
export type Evidence =
  /** Success: the window grows by one if it was full. */
  | "success"
  /** An error response or a broken connection: the window is halved, or set to one if nothing has succeeded. */
  | "failure"
  /** A timeout: one request at a time until the next success or failure. */
  | "timeout"
  /** No information: the attempt failed for another reason. */
  | "none";

/** The window of one webhook or host: attempts allowed in flight, and attempts in flight. */
export interface Window {
  allowed: number;
  inFlight: number;
  /** Whether the last attempt that started filled the window. */
  isFull: boolean;
  /** Whether the last attempt with evidence timed out. */
  timedOut: boolean;
  /** Whether an attempt has succeeded. */
  isProven: boolean;
  /** Whether all attempts since the last success failed, and the window is one. */
  isFailing: boolean;
}

/** The initial window of an unknown key. */
export const INITIAL_WINDOW = 4;
/** The maximum number of remembered windows; beyond it, idle ones are removed. */
const MAX_REMEMBERED = 20_000;

/**
 * Limits attempts in flight per key, a webhook or a host, by additive increase and multiplicative decrease. A window
 * starts small, grows by one with each success while full, is halved by a failure, and set to one by a timeout, or by a failure
 * before any success.
 * Response time has no effect: a receiver that takes two seconds is healthy.
 */
export class Windows<Key> {
  readonly #max: number;
  readonly #windows = new Map<Key, Window>();

  /** @param max the maximum window of a key */
  constructor(max: number) {
    this.#max = max;
  }

  /** The key's current window. A later change may replace the object. */
  of(key: Key): Readonly<Window> {
    return this.#windows.get(key) ?? this.#fresh();
  }

  hasRoom(key: Key): boolean {
    const window = this.#windows.get(key);
    return window === undefined || window.inFlight < window.allowed;
  }

  /** Whether there is room, for more than one request at a time to a receiver that hangs or fails. */
  isOpen(key: Key): boolean {
    const window = this.#windows.get(key);
    return (
      window === undefined || (window.inFlight < window.allowed && !window.timedOut && !window.isFailing)
    );
  }

  start(key: Key): void {
    const window = this.#window(key);
    window.inFlight += 1;
    window.isFull = window.inFlight >= window.allowed;
  }

  end(key: Key, evidence: Evidence): void {
    this.#window(key).inFlight -= 1;
    this.learn(key, evidence);
  }

  /** Applies the evidence of an attempt that was not counted in the window. */
  learn(key: Key, evidence: Evidence): void {
    if (evidence === "none") return;
    const window = this.#window(key);
    window.timedOut = evidence === "timeout";
    if (evidence === "success") window.isProven = true;
    if (evidence === "success" && window.isFull) window.allowed = Math.min(this.#max, window.allowed + 1);
    if (evidence === "failure") window.allowed = window.isProven ? Math.max(1, window.allowed >> 1) : 1;
    if (evidence === "timeout") window.allowed = 1;
    window.isFailing = evidence === "failure" && window.allowed === 1;
  }

  #fresh(): Window {
    return {
      allowed: Math.min(INITIAL_WINDOW, this.#max),
      inFlight: 0,
      isFull: false,
      timedOut: false,
      isProven: false,
      isFailing: false,
    };
  }

  #window(key: Key): Window {
    let window = this.#windows.get(key);
    if (!window) {
      if (this.#windows.size >= MAX_REMEMBERED) this.#forgetIdle();
      window = this.#fresh();
      this.#windows.set(key, window);
    }
    return window;
  }

  #forgetIdle(): void {
    for (const [key, window] of this.#windows) if (window.inFlight === 0) this.#windows.delete(key);
  }
}
