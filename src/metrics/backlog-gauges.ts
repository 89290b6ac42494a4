import { setTimeout as wait } from "node:timers/promises";
import { ValueType } from "@opentelemetry/api";
import {
  AggregationTemporality,
  type CollectionResult,
  DataPointType,
  type GaugeMetricData,
  type MetricProducer,
  type ResourceMetrics,
} from "@opentelemetry/sdk-metrics";
import type { Logger } from "pino";
import { type Db, isTransient, openDatabase, rows } from "../lib/pg/index.ts";
import { ADVISORY_LOCKS } from "../schema/index.ts";

/** Times of the readings, in milliseconds. */
export interface BacklogTimes {
  /** Time between two readings: longer after a long reading, which then takes a twentieth of the time. */
  interval: { min: number; max: number };
  /**
   * The time after which PostgreSQL ends a session that reads nothing. Longer than any rest between readings. Without it, the
   * session of a lost machine would keep the lock until TCP finds that out, by default after two hours.
   */
  idleTimeout: number;
}

const TIMES: BacklogTimes = { interval: { min: 5_000, max: 25_000 }, idleTimeout: 60_000 };
/** The rest after a reading, as a multiple of its duration. */
const REST_FACTOR = 20;
/** A reading that takes longer is given up, in milliseconds. */
const READING_TIMEOUT_MS = 20_000;

/** The open deliveries. */
export interface Backlog {
  /**
   * Deliveries whose round has no recorded attempt yet, including those of events that are not fanned out yet. Exact up
   * to 100,000.
   */
  pending: number;
  /** Deliveries that wait for another attempt, or are having one. Exact up to 100,000. */
  retrying: number;
  /** Retries that have been due for more than a minute, among the 100,000 oldest deliveries that are retried. */
  overdue: number;
  /** Age of the oldest delivery that could be sent now, in seconds; 0 when there is none. */
  oldestSendableS: number;
  /** The webhook with which the next reading of the oldest continues; null after the last webhook. */
  next: bigint | null;
  /** Time since the start of the latest dispatch run, in seconds; null before the first. */
  lastRunS: number | null;
  /** Open incidents by the code of their cause. Left out for none. */
  incidents?: readonly { cause: string; count: number }[];
  /** Webhooks by health. Left out if they were not counted. */
  webhooks?: readonly { health: string; count: number }[];
}

/** Reads the backlog. Looks at the webhooks after an id, as many as one reading may. */
export type ReadBacklog = (db: Db, from: { after: bigint }) => Promise<Backlog>;

/**
 * Gauges of what waits in the database. Of all processes on a database one exports them, so that sums over processes are
 * right: the process that holds an advisory lock in a separate session. When it ends, another one takes over within the
 * interval; when its machine is lost, within the idle timeout and the interval.
 *
 * A separate producer, because an observable gauge of the SDK continues to export its last value.
 */
export class BacklogGauges implements MetricProducer {
  readonly #times: BacklogTimes;
  readonly #end = new AbortController();
  #values: Omit<Backlog, "next"> | undefined;
  #running: Promise<void> | undefined;
  #session: Db | undefined;
  #after = 0n;
  /** The oldest of the webhooks that were looked at since the round began, and of the round before, in seconds. */
  #oldest = { now: 0, before: 0 };

  /** @param times the times of readings. Defaults to TIMES */
  constructor(times = TIMES) {
    this.#times = times;
  }

  /** Starts to read, or to wait for the lock. @param directUrl PostgreSQL's own address */
  start(directUrl: string, log: Logger, read: ReadBacklog): void {
    this.#running ??= this.#run(directUrl, log, read);
  }

  async collect(): Promise<CollectionResult> {
    const metrics = this.#values ? gauges(this.#values) : [];
    const scope = { name: "webhook-service" };
    // The reader adds these metrics to its own resource.
    const resourceMetrics = { scopeMetrics: [{ scope, metrics }] } as unknown as ResourceMetrics;
    return { resourceMetrics, errors: [] };
  }

  async close(): Promise<void> {
    this.#end.abort();
    await this.#running;
    await this.#forget();
  }

  async #run(directUrl: string, log: Logger, read: ReadBacklog): Promise<void> {
    const { signal } = this.#end;
    const { interval, idleTimeout } = this.#times;
    while (!signal.aborted) {
      const began = performance.now();
      try {
        this.#session ??= openDatabase(directUrl, {
          max: 1,
          applicationName: "webhook-service-metrics",
          queryTimeoutMs: READING_TIMEOUT_MS,
          idleTimeoutMs: idleTimeout,
        });
        if (await holdsLock(this.#session)) await this.#read(this.#session, read);
        else await this.#forget();
      } catch (err) {
        await this.#forget();
        if (!isTransient(err) && !signal.aborted)
          log.warn({ err }, "the backlog could not be read for metrics");
      }
      const tookMs = performance.now() - began;
      const restMs = Math.min(interval.max, Math.max(interval.min, tookMs * REST_FACTOR));
      await wait(restMs, undefined, { signal, ref: false }).catch(() => {});
    }
  }

  async #read(session: Db, read: ReadBacklog): Promise<void> {
    const backlog = await read(session, { after: this.#after });
    this.#after = backlog.next ?? 0n;
    const now = Math.max(this.#oldest.now, backlog.oldestSendableS);
    const oldestSendableS = backlog.next === null ? now : Math.max(now, this.#oldest.before);
    this.#oldest = backlog.next === null ? { now: 0, before: now } : { ...this.#oldest, now };
    this.#values = { ...backlog, oldestSendableS };
  }

  /** Ends the session and with it the lock, and exports nothing any more. */
  async #forget(): Promise<void> {
    const session = this.#session;
    this.#session = undefined;
    this.#values = undefined;
    this.#after = 0n;
    this.#oldest = { now: 0, before: 0 };
    await session?.destroy().catch(() => {});
  }
}

/** Takes the lock, or finds that this session has it: if its connection broke, the new one may have lost it to others. */
async function holdsLock(session: Db): Promise<boolean> {
  const [answer] = await rows<{ held: boolean }>(
    session,
    "select pg_try_advisory_lock(:lock::bigint) as held",
    {
      lock: ADVISORY_LOCKS.backlog,
    },
  );
  return answer?.held ?? false;
}

function gauges({
  pending,
  retrying,
  overdue,
  oldestSendableS,
  lastRunS,
  incidents = [],
  webhooks = [],
}: Omit<Backlog, "next">): GaugeMetricData[] {
  return [
    gauge(
      "webhook.deliveries.pending",
      "{delivery}",
      "Deliveries that have not ended: pending before their first attempt, retrying after it. Exact up to 100,000.",
      [
        [pending, { state: "pending" }],
        [retrying, { state: "retrying" }],
      ],
    ),
    gauge(
      "webhook.deliveries.oldest_sendable.age",
      "s",
      "Age of the oldest delivery that nothing but the service holds back: its webhook is not paused, rate limited or failing.",
      [[oldestSendableS, {}]],
    ),
    gauge("webhook.retries.overdue", "{delivery}", "Retries that have been due for more than a minute.", [
      [overdue, {}],
    ]),
    gauge(
      "webhook.dispatch.last_run.age",
      "s",
      "Time since the start of the latest dispatch run.",
      lastRunS === null ? [] : [[lastRunS, {}]],
    ),
    gauge(
      "webhook.incidents.open",
      "{incident}",
      "Open incidents by the code of their cause. A cause without one is left out.",
      incidents.map(({ cause, count }) => [count, { cause }]),
    ),
    gauge(
      "webhook.webhooks",
      "{webhook}",
      "Webhooks by health.",
      webhooks.map(({ health, count }) => [count, { health }]),
    ),
  ];
}

function gauge(
  name: string,
  unit: string,
  description: string,
  values: [value: number, attributes: Record<string, string>][],
): GaugeMetricData {
  const ms = Date.now();
  const time: [number, number] = [Math.floor(ms / 1_000), (ms % 1_000) * 1e6];
  return {
    descriptor: { name, unit, description, valueType: ValueType.DOUBLE },
    aggregationTemporality: AggregationTemporality.CUMULATIVE,
    dataPointType: DataPointType.GAUGE,
    dataPoints: values.map(([value, attributes]) => ({ startTime: time, endTime: time, value, attributes })),
  };
}
