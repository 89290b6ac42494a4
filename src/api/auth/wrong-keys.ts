import { RateLimiterMemory } from "rate-limiter-flexible";
import { secretSha256 } from "../../db/keys/api-keys.ts";
import { siteOf } from "./client-address.ts";

/** The window in which wrong keys are counted, in seconds. */
const WINDOW_S = 60;
/** Addresses whose wrong keys are counted at once; beyond it, the one with the oldest wrong key is forgotten. */
export const MAX_ADDRESSES = 16_384;
/** Keys that this process remembers having seen valid; beyond it, the one used longest ago is forgotten. */
export const MAX_SEEN_KEYS = 10_000;

/**
 * Bounds what guessing keys costs. An address that sent too many wrong keys is throttled: only keys that this process has
 * seen valid are looked up for it, so that a guess costs no query and colleagues behind the same NAT are not locked out.
 *
 * Nothing here admits anybody: a key that was seen valid is looked up like any other, so revocation holds.
 */
export interface WrongKeys {
  /** How long this key has to wait before it is looked up, in milliseconds; 0: not at all. */
  waitBefore(secret: string, address: () => string): Promise<number>;
  /** Takes down that a look-up found the key. */
  found(secret: string): void;
  /** Counts a key that a look-up did not find. */
  notFound(secret: string, address: () => string): Promise<void>;
}

/** Counts by this process alone. @param perMinute wrong keys of an address before it is throttled */
export function createWrongKeys(perMinute: number): WrongKeys {
  const limiter = new RateLimiterMemory({ points: perMinute, duration: WINDOW_S });
  /** SHA-256 hashes, in the order of their last use. */
  const seen = new Set<string>();
  /** In the order of their last wrong key. */
  const counted = new Set<string>();
  const hashOf = (secret: string) => secretSha256(secret).toString("base64");

  return {
    async waitBefore(secret, address) {
      if (seen.has(hashOf(secret))) return 0;
      const standing = await limiter.get(siteOf(address()));
      if (standing === null || standing.consumedPoints < perMinute) return 0;
      return Math.max(1, standing.msBeforeNext);
    },

    found(secret) {
      touch(seen, hashOf(secret), MAX_SEEN_KEYS);
    },

    async notFound(secret, address) {
      seen.delete(hashOf(secret));
      const site = siteOf(address());
      const forgotten = touch(counted, site, MAX_ADDRESSES);
      if (forgotten !== undefined) await limiter.delete(forgotten);
      await limiter.penalty(site);
    },
  };
}

/** Makes an entry the newest of a set; answers the oldest when it had to go. */
function touch(set: Set<string>, entry: string, max: number): string | undefined {
  set.delete(entry);
  set.add(entry);
  if (set.size <= max) return undefined;
  const [oldest] = set;
  set.delete(oldest as string);
  return oldest;
}
