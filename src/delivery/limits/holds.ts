import type { WindowKey } from "./task.ts";

/** The number of holds from which those that are over are removed. */
const MAX_KEPT = 1_000;

/** A time for which a receiver wants no requests. Times are in milliseconds, by the monotonic clock. */
interface Hold {
  until: number;
  /** The time at which this process knew that the hold is stored: claims that begin later leave its webhooks out. */
  storedAt: number;
}

/**
 * The holds of webhooks, and of endpoints. The database leaves out held webhooks from claims; this leaves out the deliveries of claims
 * that began before the hold was stored.
 */
export class Holds {
  readonly #holds = new Map<WindowKey, Hold>();

  /** @param isStored whether the database has the hold */
  add(window: WindowKey, now: number, holdMs: number, isStored: boolean): void {
    if (this.#holds.size >= MAX_KEPT)
      for (const [key, { until }] of this.#holds) if (until <= now) this.#holds.delete(key);
    const until = Math.max(now + holdMs, this.#holds.get(window)?.until ?? now);
    this.#holds.set(window, { until, storedAt: isStored ? now : Number.POSITIVE_INFINITY });
  }

  /** Notes that the database has the hold of a window, if any. */
  stored(window: WindowKey, now: number): void {
    const hold = this.#holds.get(window);
    if (hold) hold.storedAt = now;
  }

  /** Whether a delivery that was claimed by a statement that began at `claimedAt` must wait. */
  isHeld(window: WindowKey, now: number, claimedAt: number): boolean {
    const hold = this.#holds.get(window);
    return hold !== undefined && now < hold.until && claimedAt <= hold.storedAt;
  }
}
