/** A bound on held memory. Callers wait in order of arrival until there is room. */
export class Room {
  readonly #size: number;
  #free: number;
  readonly #waiting: { amount: number; enter: () => void }[] = [];

  /** @param size the capacity, in the callers' unit */
  constructor(size: number) {
    this.#size = size;
    this.#free = size;
  }

  /** Resolves when there is room; undefined if there is room immediately. A larger amount takes the whole capacity. */
  enter(amount: number): Promise<void> | undefined {
    const taken = Math.min(amount, this.#size);
    if (this.#waiting.length === 0 && taken <= this.#free) {
      this.#free -= taken;
      return undefined;
    }
    return new Promise((enter) => this.#waiting.push({ amount: taken, enter }));
  }

  /** Releases an amount that entered. */
  leave(amount: number): void {
    this.#free += Math.min(amount, this.#size);
    for (let next = this.#waiting[0]; next && next.amount <= this.#free; next = this.#waiting[0]) {
      this.#waiting.shift();
      this.#free -= next.amount;
      next.enter();
    }
  }
}
