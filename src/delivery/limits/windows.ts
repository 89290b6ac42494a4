/** The effect of an attempt's outcome on a window. */
export type Evidence =
  /** Success: the window grows by one if it was full. */
  | "success"
  /** An error response or a broken connection: the window is halved, unless the last attempt before it succeeded. */
  | "failure"
  /** For hosts: a webhook failed although the host was reached. Counts as a failure until an attempt to the host has succeeded. */
  | "partial failure"
  /** A timeout: the window is set to one, and the webhook or host hangs until the next success or failure. */
  | "timeout"
  /** The receiver wants no requests for some time: the window is set to one, from which it grows afterwards. */
  | "hold"
  /** No information: the attempt was not made, or failed for another reason. No effect. */
  | "none";

/** The window of one webhook or host: attempts allowed in flight, and attempts in flight. */
export interface Window {
  allowed: number;
  /** Attempts in flight that take a slot. */
  inFlight: number;
  /** Attempts in flight that take no slot of a host: those to its hanging webhooks. */
  apart: number;
  /** Whether the last attempt that started took the last slot. */
  isFull: boolean;
  /** Whether any attempt has succeeded. */
  hasSucceeded: boolean;
  /** Whether the last attempt with evidence succeeded. */
  lastSucceeded: boolean;
  /**
   * `hangs` if the last attempt with evidence timed out, `fails` if it failed and left a window of one. Such a receiver gets
   * one request at a time.
   */
  trouble: "none" | "hangs" | "fails";
  /** The successes of a second, and of the second before. Undefined if there was none since the last refusal. */
  accepted: { second: number; count: number; before: number } | undefined;
}

/** The initial window of a key. Small, because a receiver that fails or hangs costs this many connections before that is known. */
export const INITIAL_WINDOW = 2;
/** The maximum number of remembered windows; beyond it, idle ones are removed. */
const MAX_REMEMBERED = 20_000;

/**
 * Limits attempts in flight per key, a webhook or a host, by additive increase and multiplicative decrease. A window
 * starts small, grows by one with each success while full, is halved by a failure that follows another or is the first, and set to one by
 * a timeout. A failure among successes has no effect: where 1 % of the attempts failed, halving opened three times as many connections.
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
    const { inFlight, allowed } = this.of(key);
    return inFlight < allowed;
  }

  /** Whether an attempt that takes no slot may start: fewer attempts are in flight, with and without a slot, than the maximum. */
  hasRoomApart(key: Key): boolean {
    const { inFlight, apart } = this.of(key);
    return inFlight + apart < this.#max;
  }

  /** Whether the key hangs or fails, so that it gets one request at a time. */
  isInTrouble(key: Key): boolean {
    return this.of(key).trouble !== "none";
  }

  /** @param apart whether the attempt takes no slot */
  start(key: Key, apart = false): void {
    const window = this.#window(key);
    window[apart ? "apart" : "inFlight"] += 1;
    if (!apart) window.isFull = window.inFlight >= window.allowed;
  }

  /**
   * @param apart as given to `start`
   * @param now the monotonic time, in milliseconds, for `refusedRate`
   */
  end(key: Key, evidence: Evidence, apart = false, now = 0): void {
    const window = this.#window(key);
    window[apart ? "apart" : "inFlight"] -= 1;
    if (evidence === "none") return;
    const isIsolated = window.lastSucceeded;
    window.lastSucceeded = evidence === "success";
    window.trouble = "none";
    switch (evidence) {
      case "success":
        if (window.isFull) window.allowed = Math.min(this.#max, window.allowed + 1);
        window.hasSucceeded = true;
        window.accepted = countedAt(window.accepted, now, 1);
        return;
      case "hold":
        this.limit(key, 1);
        return;
      case "timeout":
        window.allowed = 1;
        window.trouble = "hangs";
        return;
      default:
        if (isIsolated || (evidence === "partial failure" && window.hasSucceeded)) return;
        window.allowed = Math.max(1, window.allowed >> 1);
        if (window.allowed === 1) window.trouble = "fails";
    }
  }

  /** Reduces the window to at most `allowed`, at least one. Requests that are in flight do not enlarge it. */
  limit(key: Key, allowed: number): void {
    const window = this.#window(key);
    if (window.allowed < allowed) return;
    window.allowed = Math.max(1, allowed);
    window.isFull = false;
  }

  /**
   * Takes note of a refusal.
   *
   * @returns the number of successes in the second before `now`; null if there was none since the last refusal
   */
  refusedRate(key: Key, now: number): number | null {
    const window = this.#window(key);
    if (!window.accepted) return null;
    const { count, before } = countedAt(window.accepted, now, 0);
    window.accepted = undefined;
    return Math.max(1, count + before * (1 - ((now / 1_000) % 1)));
  }

  #fresh(): Window {
    const allowed = Math.min(INITIAL_WINDOW, this.#max);
    return {
      allowed,
      inFlight: 0,
      apart: 0,
      isFull: false,
      hasSucceeded: false,
      lastSucceeded: false,
      trouble: "none",
      accepted: undefined,
    };
  }

  #window(key: Key): Window {
    return this.#windows.getOrInsertComputed(key, () => {
      if (this.#windows.size >= MAX_REMEMBERED) this.#forgetIdle();
      return this.#fresh();
    });
  }

  #forgetIdle(): void {
    for (const [key, window] of this.#windows)
      if (window.inFlight + window.apart === 0) this.#windows.delete(key);
  }
}

/** Adds successes to the count of the second of `now`. */
function countedAt(counted: Window["accepted"], now: number, added: number): NonNullable<Window["accepted"]> {
  const second = Math.floor(now / 1_000);
  if (counted?.second === second) {
    counted.count += added;
    return counted;
  }
  return { second, count: added, before: counted?.second === second - 1 ? counted.count : 0 };
}
