/** The most that may be in flight to one webhook and to one host, and how the allowance starts. */
export interface WindowBounds {
  start: number;
  max: number;
}

interface Window {
  allowed: number;
  inFlight: number;
  /** When a delivery last started or ended. */
  changed: number;
}

/**
 * How many deliveries may be in flight to each key (a webhook or a host). An allowance starts low, grows by one a
 * success, and halves on a fault, so that a receiver that hangs holds one slot and a good one is soon at full speed.
 */
export class Windows<Key> {
  readonly #bounds: WindowBounds;
  readonly #windows = new Map<Key, Window>();
  readonly #waiting = new Map<Key, Set<(key: Key) => void>>();

  constructor(bounds: WindowBounds) {
    this.#bounds = bounds;
  }

  /** Whether one more may start. */
  hasRoom(key: Key): boolean {
    const window = this.#windows.get(key);
    return window === undefined || window.inFlight < window.allowed;
  }

  inFlight(key: Key): number {
    return this.#windows.get(key)?.inFlight ?? 0;
  }

  /** For how long nothing has ended while no more could start, in milliseconds; 0 when there is room. */
  stuckFor(key: Key): number {
    const window = this.#windows.get(key);
    return window === undefined || this.hasRoom(key) ? 0 : performance.now() - window.changed;
  }

  start(key: Key): void {
    const window = this.#window(key);
    window.inFlight += 1;
    window.changed = performance.now();
  }

  /** To be told, once, when a delivery to the key has ended. Waiting already changes nothing. */
  wait(key: Key, tell: (key: Key) => void): void {
    const line = this.#waiting.get(key);
    if (line) line.add(tell);
    else this.#waiting.set(key, new Set([tell]));
  }

  /** Waits no more, for any key. */
  leave(tell: (key: Key) => void): void {
    for (const [key, line] of this.#waiting) {
      if (line.delete(tell) && line.size === 0) this.#waiting.delete(key);
    }
  }

  /** @param verdict `success` widens, `fault` halves, `neutral` (another's fault) leaves as it is */
  end(key: Key, verdict: "success" | "fault" | "neutral"): void {
    const window = this.#window(key);
    window.inFlight -= 1;
    window.changed = performance.now();
    if (verdict === "success") window.allowed = Math.min(this.#bounds.max, window.allowed + 1);
    if (verdict === "fault") window.allowed = Math.max(1, Math.floor(window.allowed / 2));
    // What is back at its start need not be remembered; otherwise keys would pile up over the weeks.
    if (window.inFlight === 0 && window.allowed <= this.#bounds.start) this.#windows.delete(key);
    if (this.#windows.size > 20_000) this.#forgetIdle();
    const line = this.#waiting.get(key);
    if (!line) return;
    this.#waiting.delete(key);
    for (const tell of line) tell(key);
  }

  #window(key: Key): Window {
    let window = this.#windows.get(key);
    if (!window) {
      window = { allowed: this.#bounds.start, inFlight: 0, changed: performance.now() };
      this.#windows.set(key, window);
    }
    return window;
  }

  #forgetIdle(): void {
    for (const [key, window] of this.#windows) if (window.inFlight === 0) this.#windows.delete(key);
  }
}

/** Webhooks or hosts that did badly a moment ago: what one pump of a process learns, the others need not suffer. */
export class MarkList<Key> {
  readonly #forMs: number;
  readonly #until = new Map<Key, number>();

  /** @param forMs how long a mark stays, unless it is forgotten before, in milliseconds */
  constructor(forMs: number) {
    this.#forMs = forMs;
  }

  mark(key: Key): void {
    this.#until.set(key, performance.now() + this.#forMs);
  }

  forget(key: Key): void {
    if (this.#until.size > 0) this.#until.delete(key);
  }

  has(key: Key): boolean {
    const until = this.#until.get(key);
    if (until === undefined) return false;
    if (until > performance.now()) return true;
    this.#until.delete(key);
    return false;
  }

  /** What is marked now, at most so many. */
  keys(most: number): Key[] {
    const keys: Key[] = [];
    for (const key of this.#until.keys()) {
      if (keys.length === most) break;
      if (this.has(key)) keys.push(key);
    }
    return keys;
  }
}
