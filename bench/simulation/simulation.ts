import type { DeliveryConfig, DispatchConfig } from "../../src/config/config.ts";
import { BASE_MEMORY, MEMORY_EACH } from "../../src/delivery/limits/process-limits.ts";
import { randomOf } from "../../test/support/random.ts";
import { SimulatedDatabase, type StatementCosts } from "../../test/support/simulation/simulated-database.ts";
import { SimulatedTime } from "../../test/support/simulation/simulated-time.ts";
import { SimulatedWorker } from "../../test/support/simulation/simulated-worker.ts";
import { ArrivingQueue } from "./arriving-queue.ts";
import { LimitsAccount } from "./limits-account.ts";
import { Measurements } from "./measurements.ts";
import { Runs } from "./runs.ts";
import { ScheduledRetries } from "./scheduled-retries.ts";
import { createReceivers, type ReceiversOptions } from "./spread-receivers.ts";

/** The interval of announcements to workers, in milliseconds. */
const ANNOUNCEMENT_INTERVAL_MS = 5;
/** The interval between counts of overdue retries, in seconds. */
const RETRIES_EVERY_S = 10;

/** Options of a simulation. */
export interface SimulationOptions extends Omit<ReceiversOptions, "timeoutMs"> {
  seed: number;
  seconds: number;
  workers: number;
  /** The average arrival rate of first attempts, per second. */
  perSecond: number;
  /** The thread time per attempt, in microseconds. */
  deliveryUs: number;
  payloadBytes: number;
  statements: StatementCosts;
  delivery: DeliveryConfig;
  dispatch: DispatchConfig;
}

/** The state after a second. */
export interface Sample {
  second: number;
  /** The age of the oldest waiting first attempt, in seconds. */
  oldestHealthy: number;
  oldestFailing: number;
  oldestRecovering: number;
  /** Requests in flight of the average worker, and of the worker with the most. */
  inFlight: number;
  maxInFlight: number;
  maxProbes: number;
  /** The maximum number of deliveries held by a worker. */
  maxHeld: number;
  /** The number of attempts started in this second. */
  attempts: number;
  /** The average utilization of the workers' threads. */
  busy: number;
  /** The maximum memory of a worker, in bytes. */
  memory: number;
  /** Overdue retries of failing hosts: their number, and the maximum overdue time in seconds. */
  overdue: number;
  longestOverdue: number;
}

/** All arrived deliveries by state. */
export interface Account {
  arrived: number;
  delivered: number;
  failed: number;
  /** Not claimed. */
  queued: number;
  retrying: number;
  /** Held by workers: queued, in flight, or being recorded. */
  held: number;
  /** Claimed or released by pending statements. */
  inTransit: number;
}

/** The result of a simulation. */
export interface SimulationResult {
  samples: Sample[];
  account: Account;
  measurements: Measurements;
  /** The number of claims, and the database processors used by claiming and recording. */
  claims: number;
  claiming: number;
  recording: number;
}

/** Simulates a number of seconds. @param progress called after each simulated second */
export async function simulate(
  options: SimulationOptions,
  progress: (sample: Sample) => void = () => {},
): Promise<SimulationResult> {
  const { seed, seconds, delivery, dispatch } = options;
  const time = new SimulatedTime();
  const measurements = new Measurements();
  const database = new SimulatedDatabase(time, options.statements);
  const webhooks = createReceivers({ ...options, timeoutMs: delivery.timeoutMs }, randomOf(seed));
  const arrivals = { perSecond: options.perSecond, untilMs: seconds * 1_000 };
  const queue = new ArrivingQueue(webhooks, arrivals, database, measurements, randomOf(seed + 1));
  const retryTable = new ScheduledRetries(database, dispatch);
  const around = { ...options, time, database, queue, retryTable, measurements };
  const exceeded = (what: string) => measurements.exceeded(what);
  const accounts = Array.from({ length: options.workers }, () => new LimitsAccount({ ...options, exceeded }));
  const workers = accounts.map((account, n) => new SimulatedWorker({ ...around, account }, n + 1));
  const runs = new Runs({
    time,
    database,
    retries: retryTable,
    workers,
    dispatch,
    random: randomOf(seed + 2),
  });
  runs.start();
  if (dispatch.onPublish) {
    time.clock.every(ANNOUNCEMENT_INTERVAL_MS, () => {
      for (const { pumps } of workers) pumps.wake();
    });
  }
  const samples: Sample[] = [];
  let before = { attempts: 0, work: 0 };
  for (let second = 1; second <= seconds; second += 1) {
    await time.run(second * 1_000);
    runs.check();
    queue.arrive();
    const sum = (of: (worker: SimulatedWorker) => number) =>
      workers.reduce((total, worker) => total + of(worker), 0);
    const most = (of: (worker: SimulatedWorker) => number) => Math.max(...workers.map(of));
    const inFlight = accounts.map((account) => account.inFlight);
    const age = (arrived: number | undefined) => (arrived === undefined ? 0 : second - arrived / 1_000);
    const work = sum((worker) => worker.work);
    const last = samples.at(-1);
    const { count, longestMs } =
      second % RETRIES_EVERY_S === 0
        ? retryTable.overdue("failing")
        : { count: last?.overdue ?? 0, longestMs: (last?.longestOverdue ?? 0) * 1_000 };
    const sample: Sample = {
      second,
      oldestHealthy: age(measurements.oldestHealthy),
      oldestFailing: age(queue.oldestUnclaimed("failing")),
      oldestRecovering: age(queue.oldestUnclaimed("recovering")),
      inFlight: inFlight.reduce((total, each) => total + each, 0) / workers.length,
      maxInFlight: Math.max(...inFlight),
      maxProbes: Math.max(...accounts.map(({ probes }) => probes)),
      maxHeld: most(({ held }) => held),
      attempts: measurements.attempts - before.attempts,
      busy: (work - before.work) / 1_000 / workers.length,
      memory: Math.max(
        ...workers.map(
          ({ held }, n) => BASE_MEMORY + (inFlight[n] as number) * MEMORY_EACH + held * options.payloadBytes,
        ),
      ),
      overdue: count,
      longestOverdue: longestMs / 1_000,
    };
    before = { attempts: measurements.attempts, work };
    samples.push(sample);
    progress(sample);
  }
  const { delivered, failed } = measurements.states;
  return {
    samples,
    measurements,
    account: {
      arrived: queue.arrived,
      delivered,
      failed,
      queued: queue.unclaimed,
      retrying: retryTable.unclaimed,
      held: workers.reduce((total, { held }) => total + held, 0),
      inTransit: database.inTransit,
    },
    claims: database.claims,
    claiming: database.claimingMs / 1_000 / seconds,
    recording: database.recordingMs / 1_000 / seconds,
  };
}
