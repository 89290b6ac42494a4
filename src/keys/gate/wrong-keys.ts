import { RateLimiterMemory } from "rate-limiter-flexible";
import { siteOf } from "../../calls/index.ts";
import { secretHash } from "../api-keys.ts";

/** The time window in which invalid keys are counted, in seconds. */
const WINDOW_S = 60;
/**
 * The maximum number of addresses with counted invalid keys. Beyond it, the one with the oldest invalid key is
 * forgotten.
 */
export const MAX_ADDRESSES = 16_384;
/** The maximum number of valid keys remembered by this process. Beyond it, the least recently used is forgotten. */
export const MAX_SEEN_KEYS = 10_000;

/**
 * Limits the cost of guessing keys. For an address that sent too many invalid keys, only keys that this process has
 * seen valid are looked up, so that guesses cost no query, and valid keys of others behind the same NAT are not
 * affected.
 *
 * Remembered keys are still looked up, so revocation takes effect.
 */
export interface WrongKeys {
  /** The delay before this key is looked up, in milliseconds; 0 for none. */
  waitBefore(secret: string, address: () => string): Promise<number>;
  /** Records that a lookup found the key. */
  found(secret: string): void;
  /** Records that a lookup did not find the key. */
  notFound(secret: string, address: () => string): Promise<void>;
}

/** Counts in this process only. @param perMinute the number of invalid keys per address before it is throttled */
export function createWrongKeys(perMinute: number): WrongKeys {
  const limiter = new RateLimiterMemory({ points: perMinute, duration: WINDOW_S });
  /** SHA-256 hashes, in the order of their last use. */
  const seen = new Set<string>();
  /** Counted addresses, in the order of their last invalid key. */
  const counted = new Set<string>();

  return {
    async waitBefore(secret, address) {
      if (seen.has(secretHash(secret))) return 0;
      const standing = await limiter.get(siteOf(address()));
      if (standing === null || standing.consumedPoints < perMinute) return 0;
      return Math.max(1, standing.msBeforeNext);
    },

    found(secret) {
      touch(seen, secretHash(secret), MAX_SEEN_KEYS);
    },

    async notFound(secret, address) {
      seen.delete(secretHash(secret));
      const site = siteOf(address());
      const forgotten = touch(counted, site, MAX_ADDRESSES);
      if (forgotten !== undefined) await limiter.delete(forgotten);
      await limiter.penalty(site);
    },
  };
}

/** Moves an entry to the end of a set. Returns the oldest entry if it was evicted. */
function touch(set: Set<string>, entry: string, max: number): string | undefined {
  set.delete(entry);
  set.add(entry);
  if (set.size <= max) return undefined;
  const [oldest] = set;
  set.delete(oldest as string);
  return oldest;
}
