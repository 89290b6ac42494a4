/**
 * Priority queue by load, a small integer. `first` returns the item with the lowest load; among equals, the one whose
 * load has been unchanged for longest. Every operation takes constant time.
 */
export class LeastLoaded<T> {
  readonly #loads = new Map<T, number>();
  /** Items by load, in the order in which they reached it. */
  readonly #byLoad: (Set<T> | undefined)[] = [];
  /** A lower bound of all loads. */
  #least = 0;

  get size(): number {
    return this.#loads.size;
  }

  get loads(): ReadonlyMap<T, number> {
    return this.#loads;
  }

  /** Adds an item or changes its load. Removes it if `load` is undefined. */
  set(item: T, load: number | undefined): void {
    const known = this.#loads.get(item);
    if (known === load) return;
    if (known !== undefined) this.#byLoad[known]?.delete(item);
    if (load === undefined) {
      this.#loads.delete(item);
      return;
    }
    this.#loads.set(item, load);
    this.#byLoad[load] ??= new Set();
    this.#byLoad[load].add(item);
    if (load < this.#least) this.#least = load;
  }

  /** Returns an item with the lowest load, without removing it; undefined if empty. */
  first(): T | undefined {
    if (this.#loads.size === 0) return undefined;
    for (; ; this.#least += 1) {
      const same = this.#byLoad[this.#least];
      if (same && same.size > 0) return same.values().next().value;
    }
  }
}
