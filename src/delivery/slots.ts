import { Contenders } from "./contenders.ts";

/**
 * An allowance of deliveries in flight or not yet recorded; it bounds what a crash can repeat. Who finds none free
 * can wait in line, and a slot that comes free goes to the first in line: a flow whose receivers are slow does not
 * take its own slots again before the others had a turn.
 */
export class Slots {
  readonly size: number;
  /** Among whom these slots are shared out: retries that wait take nothing of what first attempts may have. */
  readonly contenders = new Contenders();
  /** How many were ever taken. */
  taken = 0;
  #free: number;
  readonly #whole: Slots | undefined;
  readonly #parts: Slots[] = [];
  readonly #line = new Set<() => void>();

  /** @param whole an allowance that this one is a part of: parts may add up to more, and then keep each other some */
  constructor(size: number, whole?: Slots) {
    this.size = size;
    this.#free = size;
    this.#whole = whole;
    if (whole) whole.#parts.push(this);
  }

  get free(): number {
    return Math.min(this.#free, this.#whole?.free ?? this.#free);
  }

  /** Takes a slot if one is free. */
  tryTake(): boolean {
    if (this.free === 0) return false;
    this.#free -= 1;
    this.taken += 1;
    this.#whole?.tryTake();
    return true;
  }

  /** Gives a slot back, and tells the first in line. */
  give(): void {
    this.#free += 1;
    if (this.#whole) this.#whole.#free += 1;
    const lines = this.#whole ? [this, ...this.#whole.#parts.filter((part) => part !== this)] : [this];
    for (const slots of lines) {
      if (slots.tellFirst()) return;
    }
  }

  /** Waits in line; told once, and only if a slot was free then. Waiting already changes nothing. */
  wait(tell: () => void): void {
    this.#line.add(tell);
  }

  /** How many wait in line. */
  get inLine(): number {
    return this.#line.size;
  }

  leave(tell: () => void): void {
    this.#line.delete(tell);
  }

  /** Tells the first in line that a slot is free; false when none is, or nobody waits. */
  tellFirst(): boolean {
    if (this.free === 0) return false;
    for (const tell of this.#line) {
      this.#line.delete(tell);
      tell();
      return true;
    }
    return false;
  }
}
