import type { Logger } from "pino";
import type { AttemptCounts } from "../../workflows/activities.ts";
import type { Db } from "../db/database.ts";
import { untilAnswered } from "../db/faults.ts";
import {
  type AttemptResult,
  type RecordedState,
  type RetrySpacing,
  recordAttempts,
} from "../db/queue/results.ts";

/** The most results written by one statement. */
const BATCH = 200;
/** Statements under way at once: while one waits for the disk, another can be at work. */
const MAX_WRITERS = 2;
/** Results that must be waiting before a second writer starts; fewer are better off in the next group. */
const WORTH_A_WRITER = 64;

/** Given results and the new states of their deliveries, by id; without a state where the claim was lost. */
type OnRecorded = (results: readonly AttemptResult[], states: ReadonlyMap<string, RecordedState>) => void;

/** Given the delivery's new state; undefined when the claim was another's by then. */
export type Recorded = (state: RecordedState | undefined) => void;

/**
 * Writes results in small groups as they come: while one group is being written the next one gathers. The
 * sender bounds what it holds.
 */
export class Recorder {
  readonly #db: Db;
  readonly #spacing: RetrySpacing;
  readonly #log: Logger;
  readonly #onLost: (workerId: number) => void;
  readonly #onRecorded: OnRecorded;
  #waiting: { result: AttemptResult; recorded: Recorded }[] = [];
  #writers = 0;
  #writing = 0;

  /**
   * @param on.lost told whose claim a result was made under that cannot be recorded
   * @param on.recorded told of each group that was recorded
   */
  constructor(
    db: Db,
    spacing: RetrySpacing,
    log: Logger,
    on: { lost: (workerId: number) => void; recorded: OnRecorded },
  ) {
    this.#db = db;
    this.#spacing = spacing;
    this.#log = log;
    this.#onLost = on.lost;
    this.#onRecorded = on.recorded;
  }

  /** Results that are not stored yet. */
  get unrecorded(): number {
    return this.#waiting.length + this.#writing;
  }

  /** Tells once the attempt is stored. */
  record(result: AttemptResult, recorded: Recorded): void {
    this.#waiting.push({ result, recorded });
    if (this.#writers === 0 || (this.#writers < MAX_WRITERS && this.#waiting.length >= WORTH_A_WRITER)) {
      this.#writers += 1;
      // What else finishes in this turn of the event loop goes along.
      setImmediate(() => void this.#write());
    }
  }

  async #write(): Promise<void> {
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0, BATCH);
      this.#writing += batch.length;
      const results = batch.map(({ result }) => result);
      const states = await this.#store(results);
      this.#onRecorded(results, states);
      this.#writing -= batch.length;
      for (const { result, recorded } of batch) recorded(states.get(result.deliveryId));
    }
    this.#writers -= 1;
  }

  /** Tries until the database is back: the results exist nowhere else. */
  async #store(results: AttemptResult[]): Promise<Map<string, RecordedState>> {
    try {
      return await untilAnswered(() => recordAttempts(this.#db, results, this.#spacing), {
        onFirstFault: (error) => this.#log.warn({ err: error }, "results wait for the database"),
      });
    } catch (error) {
      return this.#storeSingly(results, error);
    }
  }

  /** One result that cannot be stored must not take the others with it; its delivery is claimed again later. */
  async #storeSingly(results: AttemptResult[], error: unknown): Promise<Map<string, RecordedState>> {
    const [first, ...others] = results;
    if (first && others.length === 0) {
      this.#log.error({ err: error, deliveryId: first.deliveryId }, "an attempt could not be recorded");
      this.#onLost(first.token.workerId);
      return new Map();
    }
    const states = new Map<string, RecordedState>();
    for (const result of results) {
      for (const [id, state] of await this.#store([result])) states.set(id, state);
    }
    return states;
  }
}

export const noCounts = (): AttemptCounts => ({ sent: 0, delivered: 0, retrying: 0, failed: 0 });

/** AttemptCounts a recorded attempt; nothing where its claim was lost. */
export function countIn(counts: AttemptCounts, state: RecordedState | undefined): void {
  if (state === undefined) return;
  counts.sent += 1;
  if (state !== "cancelled") counts[state] += 1;
}
