import type { DescMethod } from "@bufbuild/protobuf";
import { FairQueue, longTurn, shortTurn } from "../../calls/index.ts";
import { DomainError } from "../../contract/errors.ts";
import type { Turns } from "../../lib/pg/index.ts";

/** The part of the pool's connections for calls that read much, as a divisor, and the number of a key's such calls that may wait. */
const READS = { poolShare: 3, maxWaiting: 50 };
/** The same for other calls. */
const OTHERS = { poolShare: 2, maxWaiting: 1_000 };
/** The same for the contract's calls over REST, which wait only for each other. */
const CONTRACT = { poolShare: 4, maxWaiting: 1_000 };
/** The maximum duration of a statement that reads much, in milliseconds. A page takes far less, on a busy machine too. */
const MAX_READ_MS = 30_000;

/** Returns the turns of one call of a key. */
export type TurnsOf = (method: DescMethod, keyId: string) => Turns;

/**
 * Lets the statements of calls with a key take turns, fairly by key, so that a key with many calls leaves connections and the
 * thread to others. At most a third of the pool runs statements that read much, at most half other statements of calls and
 * their transactions, and at most a quarter those of the contract's calls over REST; one key uses at most half of each, rounded up.
 * Results take turns of the thread.
 *
 * A call takes a turn for each statement, so that a stream has none while its client reads.
 */
export class CallTurns {
  readonly #reads: FairQueue;
  readonly #others: FairQueue;
  readonly #contract: FairQueue;
  readonly #readsMuch: (method: DescMethod) => boolean;
  readonly #maxMs: number;

  /**
   * @param poolSize the maximum number of connections of the pool
   * @param readsMuch whether the calls of a method read much
   * @param maxMs the maximum duration of a statement that reads much, in milliseconds. Defaults to 30,000 (MAX_READ_MS)
   */
  constructor(poolSize: number, readsMuch: (method: DescMethod) => boolean, maxMs = MAX_READ_MS) {
    this.#readsMuch = readsMuch;
    this.#maxMs = maxMs;
    this.#reads = queueOf("reads", poolSize, READS);
    this.#others = queueOf("statements", poolSize, OTHERS);
    this.#contract = queueOf("statements of REST", poolSize, CONTRACT);
  }

  /** The turns of one call. */
  readonly of: TurnsOf = (method, keyId) => {
    const isHeavy = this.#readsMuch(method);
    return {
      ...(isHeavy ? { limit: { ms: this.#maxMs, error: () => tooLong(this.#maxMs) } } : {}),
      run: takeTurns(isHeavy ? this.#reads : this.#others, isHeavy, keyId),
    };
  };

  /** The turns of one of the contract's calls over REST. They wait only for each other. */
  readonly ofContract: TurnsOf = (method, keyId) => ({
    run: takeTurns(this.#contract, this.#readsMuch(method), keyId),
  });
}

function takeTurns(queue: FairQueue, isHeavy: boolean, keyId: string): Turns["run"] {
  let hasBegun = false;
  return (statement, signal) => {
    const begin = async () => {
      hasBegun = true;
      const result = await statement();
      // Within the turn, so that few results wait in memory.
      await (isHeavy ? longTurn(keyId) : shortTurn(keyId));
      return result;
    };
    // What has begun is not refused halfway, nor is what other keys' calls wait for, too.
    return queue.run(keyId, signal, begin, { mayRefuse: !hasBegun && signal !== undefined });
  };
}

function queueOf(what: string, poolSize: number, { poolShare, maxWaiting }: typeof READS): FairQueue {
  const atOnce = Math.max(1, Math.floor(poolSize / poolShare));
  return new FairQueue(what, { atOnce, perKey: Math.ceil(atOnce / 2), maxWaiting });
}

function tooLong(maxMs: number): DomainError {
  return new DomainError(
    "LIMIT_REACHED",
    `reading took longer than ${maxMs / 1_000} s, the maximum; ask for less (a smaller page, a shorter time range, one webhook), or retry when the database is less busy`,
    { retryAfterMs: maxMs },
  );
}
