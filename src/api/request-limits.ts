import { createHmac, randomBytes } from "node:crypto";
import ipaddr from "ipaddr.js";
import { RateLimiterMemory } from "rate-limiter-flexible";

/** The minute that all limits are counted in, in seconds. */
const WINDOW = 60;

/** How a key stands after one more request. */
export interface Allowance {
  /** Requests of a whole window. */
  limit: number;
  /** Requests left in it. */
  remaining: number;
  /** Until the next window begins. */
  resetMs: number;
  /** This request was one too many. */
  over: boolean;
}

/** Counts a request of a key. */
export type RequestLimit = (keyId: string) => Promise<Allowance>;

/**
 * Requests a minute of each key, counted by this process alone: asking the others, or the database, would cost more
 * than most requests.
 */
export function createRequestLimit(perMinute: number): RequestLimit {
  const limiter = new RateLimiterMemory({ points: perMinute, duration: WINDOW });
  return async (keyId) => {
    const { consumedPoints, remainingPoints, msBeforeNext } = await limiter.penalty(keyId);
    return {
      limit: perMinute,
      remaining: remainingPoints,
      resetMs: msBeforeNext,
      over: consumedPoints > perMinute,
    };
  };
}

/**
 * The fields of the IETF's draft "RateLimit header fields for HTTP" (draft-ietf-httpapi-ratelimit-headers), and those
 * of its sixth version, which most clients know.
 */
export function rateLimitFields({ limit, remaining, resetMs }: Allowance): [name: string, value: string][] {
  const reset = Math.ceil(resetMs / 1_000);
  return [
    ["RateLimit-Policy", `"key";q=${limit};w=${WINDOW}`],
    ["RateLimit", `"key";r=${remaining};t=${reset}`],
    ["RateLimit-Limit", String(limit)],
    ["RateLimit-Remaining", String(remaining)],
    ["RateLimit-Reset", String(reset)],
  ];
}

/** The names of `rateLimitFields`. */
export const RATE_LIMIT_FIELDS: readonly string[] = rateLimitFields({
  limit: 0,
  remaining: 0,
  resetMs: 0,
  over: false,
}).map(([name]) => name);

/** Counts a wrong key from an address; answers how long it has to wait, in milliseconds, or 0. */
export type WrongKeyLimit = (address: string) => Promise<number>;

/**
 * Addresses share so many counters, whichever by a hash that nobody outside knows. So memory is bounded, however many
 * addresses there are; and two that share one are at worst told to wait with a wrong key, never with a right one.
 */
const COUNTERS = 4_096;

/** Wrong keys a minute of each address, counted by this process alone. */
export function createWrongKeyLimit(perMinute: number): WrongKeyLimit {
  const limiter = new RateLimiterMemory({ points: perMinute, duration: WINDOW });
  const hashKey = randomBytes(32);
  return async (address) => {
    const hash = createHmac("sha256", hashKey).update(siteOf(address)).digest();
    const { consumedPoints, msBeforeNext } = await limiter.penalty(hash.readUInt32BE() % COUNTERS);
    return consumedPoints > perMinute ? Math.max(1, msBeforeNext) : 0;
  };
}

/** An IPv6 address stands for its /64: whoever has one address has them all. */
export function siteOf(text: string): string {
  if (!ipaddr.isValid(text)) return text;
  const address = ipaddr.process(text);
  return address instanceof ipaddr.IPv6 ? address.parts.slice(0, 4).join(":") : address.toString();
}
