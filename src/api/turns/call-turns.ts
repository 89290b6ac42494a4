import type { DescMethod } from "@bufbuild/protobuf";
import { FairQueue, longTurn, shortTurn } from "../../calls/index.ts";
import { DomainError } from "../../contract/errors.ts";
import type { Turns } from "../../lib/pg/index.ts";
import { readsMuch } from "./heavy-methods.ts";

/** The part of the pool's connections for calls that read much, as a divisor, and the number of a key's such calls that may wait. */
const READS = { poolShare: 3, maxWaiting: 50 };
/** The same for other calls. */
const OTHERS = { poolShare: 2, maxWaiting: 1_000 };
/** The maximum duration of a statement that reads much, in milliseconds. A page takes far less, on a busy machine too. */
const MAX_READ_MS = 30_000;

/**
 * Lets the statements of calls with a key take turns, fairly by key, so that a key with many calls leaves connections and the
 * thread to others. At most a third of the pool runs statements that read much, and at most half other statements of calls and
 * their transactions; one key uses at most half of each, rounded up. Publishing and the contract's REST calls have the rest. Results take
 * turns of the thread.
 *
 * A call takes a turn for each statement, so that a stream has none while its client reads.
 */
export class CallTurns {
  readonly #reads: FairQueue;
  readonly #others: FairQueue;
  readonly #maxMs: number;

  /**
   * @param poolSize the maximum number of connections of the pool
   * @param maxMs the maximum duration of a statement that reads much, in milliseconds. Defaults to 30,000 (MAX_READ_MS)
   */
  constructor(poolSize: number, maxMs = MAX_READ_MS) {
    this.#maxMs = maxMs;
    this.#reads = queueOf("reads", poolSize, READS);
    this.#others = queueOf("statements", poolSize, OTHERS);
  }

  /** The turns of one call. */
  of(method: DescMethod, keyId: string): Turns {
    const isHeavy = readsMuch(method);
    const queue = isHeavy ? this.#reads : this.#others;
    let hasBegun = false;
    return {
      ...(isHeavy ? { limit: { ms: this.#maxMs, error: () => tooLong(this.#maxMs) } } : {}),
      run: (statement, signal) => {
        const begin = async () => {
          hasBegun = true;
          const result = await statement();
          // Within the turn, so that few results wait in memory.
          await (isHeavy ? longTurn(keyId) : shortTurn(keyId));
          return result;
        };
        // What has begun is not refused halfway, nor is what other keys' calls wait for, too.
        return queue.run(keyId, signal, begin, { mayRefuse: !hasBegun && signal !== undefined });
      },
    };
  }
}

function queueOf(what: string, poolSize: number, { poolShare, maxWaiting }: typeof READS): FairQueue {
  const atOnce = Math.max(1, Math.floor(poolSize / poolShare));
  return new FairQueue(what, { atOnce, perKey: Math.ceil(atOnce / 2), maxWaiting });
}

function tooLong(maxMs: number): DomainError {
  return new DomainError(
    "RESOURCE_EXHAUSTED",
    `reading took longer than ${maxMs / 1_000} s, the maximum; ask for less (a smaller page, a shorter time range, one webhook), or retry when the database is less busy`,
    { reason: "LIMIT_REACHED", retryAfterMs: maxMs },
  );
}
