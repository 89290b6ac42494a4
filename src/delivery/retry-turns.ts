import { addAbortListener } from "node:events";
import { setTimeout as wait } from "node:timers/promises";
import pLimit from "p-limit";

/** So many passes have their turn at a time. */
const AT_ONCE = 2;
/** A turn is over when what was claimed in it has been sent, and after this time at the latest; milliseconds. */
const TURN_MS = 2_000;
/** None of what a pass has claimed was sent for this long: it waits for receivers; milliseconds. */
const STUCK_MS = 2_000;
const LOOK_MS = 20;

/** A pass, as far as its turns go: what it has claimed and not yet sent. */
interface Pass {
  readonly queued: number;
}

/**
 * Whose turn it is to claim while retries give way to first attempts. When thousands of retries fall due at once, all
 * of their groups would claim, and connect to all of their hosts, for the few retries that may start then: one group
 * after the other costs the first attempts much less. While retries do not give way nobody waits.
 */
export class RetryTurns {
  readonly #retries: { readonly giveWay: boolean };
  readonly #limit = pLimit(AT_ONCE);

  /** @param retries says whether they give way at the moment */
  constructor(retries: { readonly giveWay: boolean }) {
    this.#retries = retries;
  }

  /** The turns of one pass: `next` resolves when it may claim, and rejects when it is stopped; `end` gives the turn up. */
  of(pass: Pass, stop: AbortSignal): { next(): Promise<void>; end(): void } {
    let turn = { over: true };
    return {
      next: async () => {
        await this.#untilSent(pass, stop);
        turn.over = true;
        if (this.#retries.giveWay) turn = await this.#begin(stop);
      },
      end: () => {
        turn.over = true;
      },
    };
  }

  async #untilSent(pass: Pass, stop: AbortSignal): Promise<void> {
    let { queued } = pass;
    for (let stuck = 0; stuck < STUCK_MS && pass.queued > 0 && this.#retries.giveWay; stuck += LOOK_MS) {
      await wait(LOOK_MS, undefined, { signal: stop });
      if (pass.queued < queued) stuck = 0;
      queued = pass.queued;
    }
  }

  #begin(stop: AbortSignal): Promise<{ over: boolean }> {
    return new Promise((resolve, reject) => {
      const stopping = addAbortListener(stop, () => reject(stop.reason));
      void this.#limit(async () => {
        stopping[Symbol.dispose]();
        if (stop.aborted) return;
        const turn = { over: false };
        resolve(turn);
        for (let ms = 0; ms < TURN_MS && !turn.over && this.#retries.giveWay; ms += LOOK_MS)
          await wait(LOOK_MS);
      });
    });
  }
}
