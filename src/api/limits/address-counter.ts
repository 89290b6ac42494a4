import { DomainError } from "../../contract/errors.ts";
import { type ProxyTrust, siteOf } from "../auth/client-address.ts";

/**
 * Counts open connections or calls per client address. IPv6 addresses count by /64. Trusted proxies are not limited.
 */
export class AddressCounter {
  readonly #max: number;
  readonly #isTrusted: ProxyTrust;
  readonly #open = new Map<string, number>();

  /** @param max the limit per address */
  constructor(max: number, isTrusted: ProxyTrust) {
    this.#max = max;
    this.#isTrusted = isTrusted;
  }

  /**
   * Counts one more for an address. Returns a function that ends it; undefined if the address has reached its limit.
   *
   * @param makeRoom called at the limit; returns whether it ends another one of the address
   */
  enter(address: string, makeRoom: () => boolean = () => false): (() => void) | undefined {
    if (this.#isTrusted(address)) return () => {};
    const site = siteOf(address);
    const open = this.#open.get(site) ?? 0;
    if (open >= this.#max && !makeRoom()) return undefined;
    this.#open.set(site, open + 1);
    return () => {
      const left = (this.#open.get(site) ?? 0) - 1;
      if (left > 0) this.#open.set(site, left);
      else this.#open.delete(site);
    };
  }
}

/** The maximum number of calls in flight that one address may make without a key: health, reflection, sessions. */
export const MAX_PUBLIC_CALLS = 200;

/** The error for a call above MAX_PUBLIC_CALLS. */
export function tooManyPublicCalls(): DomainError {
  return new DomainError(
    "RESOURCE_EXHAUSTED",
    `your address has ${MAX_PUBLIC_CALLS} calls without a key in flight, the maximum; end some, or use one Watch for all`,
    { reason: "LIMIT_REACHED", retryAfterMs: 1_000 },
  );
}
