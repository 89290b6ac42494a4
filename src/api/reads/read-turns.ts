import type { DescMethod } from "@bufbuild/protobuf";
import type { Turns } from "../../db/connections/call-signal.ts";
import { FairQueue } from "../limits/fair-queue.ts";
import { readsMuch } from "./heavy-methods.ts";
import { ResultTurns } from "./result-turns.ts";

/** The part of the pool's connections that calls that read much may use, as a divisor. */
const POOL_SHARE = 3;
/** The maximum number of a key's calls that wait to read much. */
const MAX_WAITING_READS = 50;
/** The maximum duration of a statement that reads much, in milliseconds. A page takes far less, on a busy machine too. */
const MAX_READ_MS = 30_000;

/**
 * Lets the statements of calls that read much take turns, so that other calls find free connections. At most a third of the pool
 * runs such statements, and at most half of this part, rounded up, for one key. Their results take turns, too.
 *
 * A call takes a turn for each statement, so that a stream has none while its client reads.
 */
export class ReadTurns {
  readonly #queue: FairQueue;
  readonly #maxMs: number;
  readonly #results = new ResultTurns();

  /**
   * @param poolSize the maximum number of connections of the pool
   * @param maxMs the maximum duration of a statement, in milliseconds. Defaults to 30,000 (MAX_READ_MS)
   */
  constructor(poolSize: number, maxMs = MAX_READ_MS) {
    const atOnce = Math.max(1, Math.floor(poolSize / POOL_SHARE));
    this.#maxMs = maxMs;
    this.#queue = new FairQueue("reads", {
      atOnce,
      perKey: Math.ceil(atOnce / 2),
      maxWaiting: MAX_WAITING_READS,
    });
  }

  /** The turns of one call; undefined if its method reads little. */
  of(method: DescMethod, keyId: string): Turns | undefined {
    if (!readsMuch(method)) return undefined;
    let hasBegun = false;
    return {
      maxMs: this.#maxMs,
      run: (statement, signal) => {
        const begin = async () => {
          hasBegun = true;
          const result = await statement();
          // Within the turn, so that few results wait in memory.
          await this.#results.next();
          return result;
        };
        // What has begun is not refused halfway, nor is what other keys' calls wait for, too.
        return this.#queue.run(keyId, signal, begin, { mayRefuse: !hasBegun && signal !== undefined });
      },
    };
  }
}
