import type { DispatchConfig } from "../../src/config/config.ts";
import type { Random } from "../../test/support/random.ts";
import type { SimulatedDatabase } from "../../test/support/simulation/simulated-database.ts";
import type { SimulatedTime } from "../../test/support/simulation/simulated-time.ts";
import type { SimulatedWorker } from "../../test/support/simulation/simulated-worker.ts";
import type { ScheduledRetries } from "./scheduled-retries.ts";

/**
 * As in the workflow: the interval between lists of failed deliveries, in milliseconds, and the activities per list.
 */
const ASK_MS = 15_000;
const PASSES_PER_ASK = 15;
/** As in the schedule: the overlap of the pumps of two runs, in milliseconds. */
const OVERLAP_MS = 15_000;
/** The time from the start of an activity until a worker has it, in milliseconds. */
const ACTIVITY_START_MS = 20;
/** The minimum delay between passes, in milliseconds. */
const MIN_DELAY_MS = 1;

const NEVER = new AbortController().signal;

/** The runs of the schedule, as in the workflow `dispatchPendingDeliveries`. */
export class Runs {
  readonly #time: SimulatedTime;
  readonly #database: SimulatedDatabase;
  readonly #retries: ScheduledRetries;
  readonly #workers: readonly SimulatedWorker[];
  readonly #dispatch: DispatchConfig;
  readonly #random: Random;
  #started = 0;
  #error: unknown;

  constructor(parts: {
    time: SimulatedTime;
    database: SimulatedDatabase;
    retries: ScheduledRetries;
    workers: readonly SimulatedWorker[];
    dispatch: DispatchConfig;
    random: Random;
  }) {
    this.#time = parts.time;
    this.#database = parts.database;
    this.#retries = parts.retries;
    this.#workers = parts.workers;
    this.#dispatch = parts.dispatch;
    this.#random = parts.random;
  }

  /** Starts a run now, and another one at each interval. */
  start(): void {
    const run = () => {
      this.#started += 1;
      this.#run(this.#started).catch((error: unknown) => {
        this.#error ??= error;
      });
    };
    this.#time.clock.every(this.#dispatch.intervalMs, run);
    run();
  }

  /** @throws the error of a run */
  check(): void {
    if (this.#error !== undefined) throw this.#error;
  }

  get #pumpMs(): number {
    return this.#dispatch.intervalMs + OVERLAP_MS;
  }

  async #run(runId: number): Promise<void> {
    const { clock } = this.#time;
    const retrying = new Map<number, Promise<void>>();
    const ask = async () => {
      this.#retries.adopt(await this.#database.read(runId));
      const groups = this.#retries.assignGroups(runId);
      for (const group of groups) {
        if (retrying.has(group)) continue;
        const retried = this.#retry(runId, group).finally(() => retrying.delete(group));
        retrying.set(group, retried);
      }
      return groups;
    };
    let isPumping = true;
    const forMs = this.#pumpMs;
    const pumped = Promise.all(
      this.#workers.map(({ pumps }) => pumps.run(runId, { lingers: this.#dispatch.onPublish, forMs }, NEVER)),
    ).then(() => {
      isPumping = false;
    });
    while (isPumping) {
      await Promise.race([pumped, clock.wait(ASK_MS)]);
      await ask();
    }
    do {
      await Promise.all(retrying.values());
    } while ((await ask()).length > 0 || !this.#retries.close(runId));
  }

  /** Runs passes over a group until nothing is open. */
  async #retry(runId: number, group: number): Promise<void> {
    const { clock } = this.#time;
    const options = {
      horizonMs: Math.min(this.#pumpMs, this.#dispatch.retryInitialDelayMs),
      forMs: this.#pumpMs,
    };
    let { delayMs } = this.#retries.status(runId, group);
    for (let pass = 0; pass < PASSES_PER_ASK; pass += 1) {
      await clock.wait(delayMs + ACTIVITY_START_MS);
      const worker = this.#workers[Math.floor(this.#random() * this.#workers.length)] as SimulatedWorker;
      const { status } = await worker.retries.run({ runId, group }, options, NEVER);
      if (status.open === 0) return;
      delayMs = Math.max(MIN_DELAY_MS, status.delayMs);
    }
  }
}
