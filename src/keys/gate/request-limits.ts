import { RateLimiterMemory } from "rate-limiter-flexible";

/** The time window of all rate limits, in seconds. */
const WINDOW = 60;

/** The quota of a key after a request. */
export interface Allowance {
  /** The number of requests per window. */
  limit: number;
  /** The number of requests left in the window. */
  remaining: number;
  /** The time until the next window, in milliseconds. */
  resetMs: number;
  /** Whether this request exceeds the limit. */
  over: boolean;
}

/** Counts a request of a key. */
export type RequestLimit = (keyId: string) => Promise<Allowance>;

/**
 * Creates a rate limit per key, in requests per minute. Counts in this process only: coordination would cost more
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
 * The headers of the IETF draft "RateLimit header fields for HTTP" (draft-ietf-httpapi-ratelimit-headers), and those
 * of its sixth version, which most clients support.
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
