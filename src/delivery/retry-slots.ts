import { Slots } from "./slots.ts";

/** First attempts that start at more than this rate are at full speed, and retries give way to them; a second. */
const FULL_SPEED = 500;
/** Then one retry starts for so many first attempts. */
const FIRST_ATTEMPTS_EACH = 64;
/** And at least so many start a second. */
const AT_LEAST = 100;
/** The rate of first attempts is looked at this often, and who waits is told; milliseconds. */
const LOOK_MS = 20;
/** It is averaged over about this time: on a busy processor they start in bursts; milliseconds. */
const AVERAGED_MS = 100;

/**
 * The slots of retries. While first attempts go at full speed, few retries start beside them: very many that fall due
 * at once would take the processor and the database from deliveries that nothing is wrong with. They are not held up
 * for it by much: what is slow takes no part of that speed, and first attempts do not go at it for long.
 */
export class RetrySlots extends Slots {
  readonly #firstAttempts: Slots;
  #lookedAt = performance.now();
  #takenThen = 0;
  #perSecond = 0;
  /** Retries that may start meanwhile. */
  #allowed = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(size: number, whole: Slots, firstAttempts: Slots) {
    super(size, whole);
    this.#firstAttempts = firstAttempts;
  }

  /** Whether first attempts go at full speed. */
  get giveWay(): boolean {
    this.#look();
    return this.#perSecond > FULL_SPEED;
  }

  override get free(): number {
    return this.giveWay ? Math.min(Math.floor(this.#allowed), super.free) : super.free;
  }

  override tryTake(): boolean {
    if (!super.tryTake()) return false;
    if (this.giveWay) this.#allowed -= 1;
    return true;
  }

  override wait(tell: () => void): void {
    super.wait(tell);
    this.#tellLater();
  }

  /** Slots that come free tell who waits; that first attempts are through does not. */
  #tellLater(): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      while (this.tellFirst());
      if (this.inLine > 0) this.#tellLater();
    }, LOOK_MS);
  }

  #look(): void {
    const now = performance.now();
    const forMs = now - this.#lookedAt;
    if (forMs < LOOK_MS) return;
    const { taken } = this.#firstAttempts;
    const gaveWay = this.#perSecond > FULL_SPEED;
    const justNow = ((taken - this.#takenThen) * 1_000) / forMs;
    this.#perSecond += (justNow - this.#perSecond) * (1 - Math.exp(-forMs / AVERAGED_MS));
    const more = (Math.max(AT_LEAST, this.#perSecond / FIRST_ATTEMPTS_EACH) * forMs) / 1_000;
    this.#allowed = gaveWay ? Math.min(this.size, this.#allowed + more) : 1;
    this.#lookedAt = now;
    this.#takenThen = taken;
  }
}
