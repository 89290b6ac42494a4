/** The time that a result may take without a pause after it, in milliseconds. */
const SHORT_MS = 5;

/**
 * Hands over the results of statements one at a time, each after a pause as long as the thread worked on the one before: 1,000
 * rows take tens of milliseconds to become a response, so that the responses to other calls would wait for many of them.
 */
export class ResultTurns {
  /** Resolves when the next result may be handed over. */
  #free: Promise<void> = Promise.resolve();

  /** Resolves when the caller may use its result. */
  async next(): Promise<void> {
    const before = this.#free;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#free = promise;
    await before;
    const began = performance.now();
    // The work on a result is done when the event loop continues: nothing of it waits.
    setImmediate(() => {
      const tookMs = performance.now() - began;
      if (tookMs < SHORT_MS) resolve();
      else setTimeout(resolve, tookMs);
    });
  }
}
