/** What an attempt showed about a webhook or a host. */
export type Evidence =
  /** It works: more may be in flight at once. */
  | "success"
  /** It answered with an error, or broke off: half as much. */
  | "failure"
  /** It did not answer in time: one at a time, until it does. */
  | "timeout"
  /** Nothing: the attempt failed for another reason. */
  | "none";

/** How much may be in flight to one webhook or host, and how much is. */
export interface Window {
  allowed: number;
  inFlight: number;
  /** The last attempt that started filled it: more could have been in flight. */
  isFull: boolean;
  /** The last attempt that showed anything timed out. */
  timedOut: boolean;
}

/** What holds for a key that nothing is known of. */
const START = 4;
/** Windows of idle keys that are remembered, at most. */
const MAX_REMEMBERED = 20_000;

/**
 * How many attempts may be in flight to each key, a webhook or a host: few at first, one more with each success while
 * the window is full, half as many after a failure, one after a timeout. How long a response takes changes nothing:
 * a receiver that needs two seconds is healthy.
 */
export class Windows<Key> {
  readonly #max: number;
  readonly #windows = new Map<Key, Window>();

  /** @param max the most that may be in flight to one key */
  constructor(max: number) {
    this.#max = max;
  }

  /** The key's window as it is now; a later change may replace the object. */
  of(key: Key): Readonly<Window> {
    return this.#windows.get(key) ?? this.#fresh();
  }

  hasRoom(key: Key): boolean {
    const window = this.#windows.get(key);
    return window === undefined || window.inFlight < window.allowed;
  }

  /** Whether there is room, and not only for a probe. */
  isOpen(key: Key): boolean {
    const window = this.#windows.get(key);
    return window === undefined || (window.inFlight < window.allowed && !window.timedOut);
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

  /** Takes note of an attempt that was not counted in the window. */
  learn(key: Key, evidence: Evidence): void {
    if (evidence === "none") return;
    const window = this.#window(key);
    window.timedOut = evidence === "timeout";
    if (evidence === "success" && window.isFull) window.allowed = Math.min(this.#max, window.allowed + 1);
    if (evidence === "failure") window.allowed = Math.max(1, Math.floor(window.allowed / 2));
    if (evidence === "timeout") window.allowed = 1;
  }

  #fresh(): Window {
    return { allowed: Math.min(START, this.#max), inFlight: 0, isFull: false, timedOut: false };
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
