import type { Logger } from "pino";
import type { Db } from "../db/database.ts";
import { untilAnswered } from "../db/faults.ts";
import {
  type AttemptResult,
  type RecordedState,
  type RetrySpacing,
  recordAttempts,
} from "../db/queue/results.ts";

/** The maximum number of results written by one statement. */
const MAX_RESULTS_PER_STATEMENT = 200;
/** The maximum number of concurrent statements: while one waits for the disk, the other can run. */
const MAX_WRITERS = 2;
/**
 * The number of queued results from which a second writer starts. Fewer results are more efficient in the next batch.
 */
const MIN_RESULTS_FOR_SECOND_WRITER = 64;

/** Receives the delivery's new state; undefined if another worker had claimed it. */
export type Recorded = (state: RecordedState | undefined) => void;

/** Dependencies of a recorder. */
export interface RecorderParts {
  db: Db;
  spacing: RetrySpacing;
  log: Logger;
  /** Receives results and the new states of their deliveries, by id. A delivery whose claim was lost has no state. */
  onRecorded: (results: readonly AttemptResult[], states: ReadonlyMap<string, RecordedState>) => void;
}

/**
 * Writes attempt results in batches: while one batch is being written, the next one fills. The sender limits the
 * number of unrecorded results.
 */
export class Recorder {
  readonly #parts: RecorderParts;
  #waiting: { result: AttemptResult; recorded: Recorded }[] = [];
  #writers = 0;
  #writing = 0;

  constructor(parts: RecorderParts) {
    this.#parts = parts;
  }

  /** The number of results that are not stored yet. */
  get unrecorded(): number {
    return this.#waiting.length + this.#writing;
  }

  /** Queues a result and calls `recorded` when it is stored. */
  record(result: AttemptResult, recorded: Recorded): void {
    this.#waiting.push({ result, recorded });
    const maxWriters = this.#waiting.length >= MIN_RESULTS_FOR_SECOND_WRITER ? MAX_WRITERS : 1;
    if (this.#writers >= maxWriters) return;
    this.#writers += 1;
    // Results that arrive in the same turn of the event loop join the batch.
    setImmediate(() => void this.#write());
  }

  async #write(): Promise<void> {
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0, MAX_RESULTS_PER_STATEMENT);
      this.#writing += batch.length;
      const results = batch.map(({ result }) => result);
      const states = await this.#store(results);
      this.#parts.onRecorded(results, states);
      this.#writing -= batch.length;
      for (const { result, recorded } of batch) recorded(states.get(result.deliveryId));
    }
    this.#writers -= 1;
  }

  /**
   * Retries until the database is available: the results exist nowhere else. If some cannot be stored, stores each by itself, so that
   * they do not affect the others. Their deliveries are claimed again later.
   */
  async #store(results: AttemptResult[]): Promise<Map<string, RecordedState>> {
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
