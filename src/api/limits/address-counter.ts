import { siteOf } from "../../calls/index.ts";
import type { ProxyTrust } from "../context/client-address.ts";

/**
 * Counts open connections or streams per client address. IPv6 addresses count by /64. Trusted proxies are not limited.
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
