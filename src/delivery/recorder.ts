import type { Logger } from "pino";
import { type Db, gathering, untilAnswered } from "../lib/pg/index.ts";
import {
  type AttemptResult,
  heedWishes,
  type RecordedState,
  type RetrySpacing,
  recordAttempts,
} from "../queue/index.ts";

/**
 * Batch limits. While one statement waits for the disk, another can run. A second statement needs at least 64 results: fewer are cheaper
 * to write together with those that follow.
 */
const BATCH = { most: 200, atOnce: 2, minBeside: 64 };

/** Receives the delivery's new state; undefined if the claim was lost, or the result cannot be stored. */
export type Recorded = (state: RecordedState | undefined) => void;

/** Dependencies of a recorder. */
export interface RecorderParts {
  db: Db;
  spacing: RetrySpacing;
  log: Logger;
  /** Receives results and the new states of their deliveries, by id. Without a state, the result was not stored. */
  onRecorded: (results: readonly AttemptResult[], states: ReadonlyMap<string, RecordedState>) => void;
}

/**
 * Writes attempt results in batches: while one batch is being written, the next one fills. The sender limits the
 * number of unrecorded results.
 */
export class Recorder {
  readonly #parts: RecorderParts;
  readonly #write: (result: AttemptResult) => Promise<RecordedState | undefined>;
  /** The number of results that are not stored yet. */
  unrecorded = 0;

  constructor(parts: RecorderParts) {
    this.#parts = parts;
    this.#write = gathering(async (results) => {
      await this.#heed(results);
      const states = await this.#store(results);
      parts.onRecorded(results, states);
      return results.map(({ deliveryId }) => states.get(deliveryId));
    }, BATCH);
  }

  /** Queues a result and calls `recorded` when it is stored. */
  record(result: AttemptResult, recorded: Recorded): void {
    this.unrecorded += 1;
    void this.#write(result).then((state) => {
      this.unrecorded -= 1;
      recorded(state);
    });
  }

  /** Stores what receivers ask for, before the results: no process may claim the retry of a refused delivery too early. */
  async #heed(results: readonly AttemptResult[]): Promise<void> {
    const { db, log } = this.#parts;
    const wishes = results.map(({ wish }) => wish).filter((wish) => wish !== undefined);
    try {
      await untilAnswered(() => heedWishes(db, wishes));
    } catch (err) {
      log.error(
        { err },
        "storing a hold failed; other processes send requests until the receiver refuses them",
      );
    }
  }

  /**
   * Retries until the database is available, because the results exist only here. If a batch cannot be stored, stores each result by
   * itself. A delivery whose result cannot be stored is claimed and attempted again later.
   */
  async #store(results: readonly AttemptResult[]): Promise<Map<string, RecordedState>> {
    const { db, spacing, log } = this.#parts;
    try {
      return await untilAnswered(() => recordAttempts(db, results, spacing), {
        onFirstFault: (err) => log.warn({ err }, "recording results delayed: the database is unavailable"),
      });
    } catch (err) {
      if (results.length === 1) {
        log.error({ err, deliveryId: results[0]?.deliveryId }, "recording an attempt failed");
        return new Map();
      }
      const states: [string, RecordedState][] = [];
      for (const result of results) states.push(...(await this.#store([result])));
      return new Map(states);
    }
  }
}
