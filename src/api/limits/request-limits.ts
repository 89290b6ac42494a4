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
