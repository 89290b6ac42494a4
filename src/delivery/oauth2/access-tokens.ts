import { LRUCache } from "lru-cache";
import type { OAuth2Client } from "../../contract/target-rules.ts";
import type { ClientAuthentication } from "./client-authentication.ts";
import { type AccessToken, TokenError } from "./token-request.ts";

/** The maximum number of clients whose tokens are cached. */
const MAX_CACHED_CLIENTS = 1_000;
/** The maximum renewal lead: the time before the end of a token's lifetime at which the token is renewed, in milliseconds. */
const MAX_RENEWAL_LEAD_MS = 60_000;
/** The renewal lead is at most this part of the lifetime: one fifth. */
const RENEWAL_LEAD_PART = 5;
/** A token is not used in the last part of its renewal lead, one fourth: a request that starts then could arrive after its expiry. */
const UNUSED_PART = 4;
/** The limits of a token's lifetime, in milliseconds. The minimum bounds the rate of fetches. */
const MIN_LIFETIME_MS = 1_000;
const MAX_LIFETIME_MS = 86_400_000;
/** The time after a failed fetch in which no other is made, in milliseconds: attempts fail with the same error. */
const FAILURE_CACHE_MS = 5_000;
/** The minimum time between two renewals because of a 401, in milliseconds. */
const MIN_REFUSAL_INTERVAL_MS = 30_000;

interface Cached {
  token?: { value: string; renewAt: number; endsAt: number } | undefined;
  pending?: Promise<string> | undefined;
  failed?: { error: unknown; until: number } | undefined;
  /** The time of the last renewal because of a 401. */
  refusedAt: number;
  /** The way to send the client's id and secret that has worked. */
  way?: ClientAuthentication | undefined;
}

/** Fetches a token. @param worked the way to send the client's id and secret that has worked */
type FetchToken = (client: OAuth2Client, worked: ClientAuthentication | undefined) => Promise<AccessToken>;

/**
 * The access tokens of a process, by client. A token is fetched once for all deliveries that wait for it, and renewed
 * in the background before it ends.
 */
export class AccessTokens {
  readonly #fetch: FetchToken;
  readonly #cached = new LRUCache<string, Cached>({
    max: MAX_CACHED_CLIENTS,
    memoMethod: () => ({ refusedAt: Number.NEGATIVE_INFINITY }),
  });

  constructor(fetch: FetchToken) {
    this.#fetch = fetch;
  }

  /**
   * The client's token, or a promise of it if it must be fetched first.
   *
   * @throws TokenError by rejecting
   */
  get(client: OAuth2Client): string | Promise<string> {
    const cached = this.#of(client);
    const { token } = cached;
    const now = performance.now();
    if (!token || now >= token.endsAt) return this.#renewed(client, cached);
    // The token is still valid if its renewal fails.
    if (now >= token.renewAt) this.#renewed(client, cached).catch(() => {});
    return token.value;
  }

  /**
   * Reports that a receiver answered 401 to a token: the next attempt uses another one. A receiver that refuses every
   * token causes at most one fetch in 30 s (MIN_REFUSAL_INTERVAL_MS).
   */
  refused(client: OAuth2Client, value: string): void {
    const cached = this.#of(client);
    const now = performance.now();
    if (cached.token?.value !== value || now - cached.refusedAt < MIN_REFUSAL_INTERVAL_MS) return;
    cached.token = undefined;
    cached.refusedAt = now;
  }

  #of(client: OAuth2Client): Cached {
    // The key includes the secret, so that webhooks share a token only if their credentials are the same.
    return this.#cached.memo(JSON.stringify(client));
  }

  #renewed(client: OAuth2Client, cached: Cached): Promise<string> {
    if (cached.failed && performance.now() < cached.failed.until) return Promise.reject(cached.failed.error);
    cached.pending ??= this.#fetchInto(client, cached).finally(() => {
      cached.pending = undefined;
    });
    return cached.pending;
  }

  async #fetchInto(client: OAuth2Client, cached: Cached): Promise<string> {
    const asked = performance.now();
    try {
      const { value, lifetimeMs, way } = await this.#fetch(client, cached.way);
      cached.way = way;
      const lifetime = Math.max(MIN_LIFETIME_MS, Math.min(lifetimeMs, MAX_LIFETIME_MS));
      const lead = Math.min(MAX_RENEWAL_LEAD_MS, lifetime / RENEWAL_LEAD_PART);
      cached.token = {
        value,
        renewAt: asked + lifetime - lead,
        endsAt: asked + lifetime - lead / UNUSED_PART,
      };
      cached.failed = undefined;
      return value;
    } catch (error) {
      if (error instanceof TokenError) cached.failed = { error, until: performance.now() + FAILURE_CACHE_MS };
      throw error;
    }
  }
}
