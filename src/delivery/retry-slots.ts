import { Slots } from "./slots.ts";

/**
 * First attempts are at full speed when more than this start a second, and this part of the process's one thread's
 * time is taken: retries give way to them then. While the thread has time for both, both have it.
 */
const FULL_SPEED = 500;
const BUSY = 0.7;
/** Then one retry starts for so many first attempts: with a connection of its own it costs as much as ten of these. */
const FIRST_ATTEMPTS_EACH = 256;
/** And at least so many start a second. */
const AT_LEAST = 25;
/** Otherwise so many start at once, and more at this pace, which doubles this often; a second, milliseconds. */
const FIRST_ONES = 16;
const FIRST_PACE = 100;
const DOUBLES_MS = 250;
/** At this pace there are as many as there are slots. */
const FULL_PACE = 5_000;
/** They begin anew when nobody wanted one for this long; milliseconds. */
const IDLE_MS = 1_000;
/** How fast they are is looked at this often, and who waits is told; milliseconds. */
const LOOK_MS = 20;
/** It is averaged over about this time: on a busy processor they start in bursts; milliseconds. */
const AVERAGED_MS = 100;

/** What part of this thread's time was taken since it was asked last, from 0 to 1. */
function threadLoad(): () => number {
  let last = performance.eventLoopUtilization();
  return () => {
    const now = performance.eventLoopUtilization();
    const { utilization } = performance.eventLoopUtilization(now, last);
    last = now;
    return utilization;
  };
}

/**
 * The slots of retries. While first attempts are at full speed, few retries start beside them: very many that fall due
 * at once would take the processor and the database from deliveries that nothing is wrong with. They are not held up
 * for it by much: what is slow takes no part of that speed, and first attempts are not at it for long. And since both
 * tend to begin with the same minute, retries begin slowly.
 */
export class RetrySlots extends Slots {
  readonly #firstAttempts: Slots;
  readonly #loadSinceLast: () => number;
  #lookedAt = performance.now();
  #takenThen = 0;
  #perSecond = 0;
  #load = 0;
  #givesWay = false;
  /** Retries that may start: a second, and now. */
  #pace = FIRST_PACE;
  #allowed = FIRST_ONES;
  #timer: NodeJS.Timeout | undefined;

  /** @param loadSinceLast answers what part of this thread's time was taken since it was asked last, from 0 to 1 */
  constructor(size: number, whole: Slots, firstAttempts: Slots, loadSinceLast = threadLoad()) {
    super(size, whole);
    this.#firstAttempts = firstAttempts;
    this.#loadSinceLast = loadSinceLast;
  }

  /** Whether first attempts are at full speed. */
  get giveWay(): boolean {
    this.#look();
    return this.#givesWay;
  }

  override get free(): number {
    this.#look();
    return Math.min(Math.floor(this.#allowed), super.free);
  }

  override tryTake(): boolean {
    if (!super.tryTake()) return false;
    this.#allowed -= 1;
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
    const justNow = ((taken - this.#takenThen) * 1_000) / forMs;
    const weight = 1 - Math.exp(-forMs / AVERAGED_MS);
    this.#perSecond += (justNow - this.#perSecond) * weight;
    this.#load += (this.#loadSinceLast() - this.#load) * weight;
    this.#lookedAt = now;
    this.#takenThen = taken;
    const gaveWay = this.#givesWay;
    this.#givesWay = this.#perSecond > FULL_SPEED && this.#load > BUSY;
    if (this.#givesWay) {
      this.#pace = Math.max(AT_LEAST, this.#perSecond / FIRST_ATTEMPTS_EACH);
      this.#allowMore(forMs, gaveWay ? this.size : 1);
    } else if (forMs > IDLE_MS) {
      this.#pace = FIRST_PACE;
      this.#allowed = FIRST_ONES;
    } else {
      this.#pace = Math.min(FULL_PACE, this.#pace * 2 ** (forMs / DOUBLES_MS));
      this.#allowMore(forMs, this.size);
    }
  }

  #allowMore(forMs: number, most: number): void {
    this.#allowed =
      this.#pace < FULL_PACE
        ? Math.min(most, this.#allowed + (this.#pace * forMs) / 1_000)
        : Number.POSITIVE_INFINITY;
  }
}
