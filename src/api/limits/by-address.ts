import { siteOf } from "../../calls/index.ts";

/** Open connections, sessions or streams by the address of their client. IPv6 addresses count by /64. */
export class ByAddress<Open> {
  readonly #bySite = new Map<string, Set<Open>>();

  /** Those of an address, in the order in which they were added. */
  of(address: string): ReadonlySet<Open> {
    return this.#bySite.get(siteOf(address)) ?? new Set();
  }

  /** @returns removes it */
  add(address: string, open: Open): () => void {
    const site = siteOf(address);
    const all = this.#bySite.getOrInsertComputed(site, () => new Set<Open>()).add(open);
    return () => {
      if (all.delete(open) && all.size === 0) this.#bySite.delete(site);
    };
  }
}
