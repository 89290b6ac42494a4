/** A bound on what is held in memory: callers wait, first come first served, until there is room for theirs. */
export class Room {
  readonly #size: number;
  #free: number;
  readonly #waiting: { amount: number; enter: () => void }[] = [];

  /** @param size in whatever unit the callers count in */
  constructor(size: number) {
    this.#size = size;
    this.#free = size;
  }

  /** Resolves once there is room; undefined when there is at once. What is larger than the room takes all of it. */
  enter(amount: number): Promise<void> | undefined {
    const taken = Math.min(amount, this.#size);
    if (this.#waiting.length === 0 && taken <= this.#free) {
      this.#free -= taken;
      return undefined;
    }
    return new Promise((enter) => this.#waiting.push({ amount: taken, enter }));
  }

  /** Gives back what was entered with the same amount. */
  leave(amount: number): void {
    this.#free += Math.min(amount, this.#size);
    for (let next = this.#waiting[0]; next && next.amount <= this.#free; next = this.#waiting[0]) {
      this.#waiting.shift();
      this.#free -= next.amount;
      next.enter();
    }
  }
}
