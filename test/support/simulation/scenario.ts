import { readConfig } from "../../../src/config/config.ts";
import type { PassResult } from "../../../src/delivery/retry-pass.ts";
import type { PumpResult } from "../../../workflows/activities.ts";
import { QueueTable, SimulatedDelivery } from "./queue-table.ts";
import {
  type Answer,
  answerOf,
  type Host,
  type Measuring,
  type SimulatedWebhook,
  stateAfter,
  webhookAt,
} from "./receivers.ts";
import { RetryTable } from "./retry-table.ts";
import { SimulatedDatabase } from "./simulated-database.ts";
import { SimulatedTime } from "./simulated-time.ts";
import { SimulatedWorker } from "./simulated-worker.ts";

/** Webhooks that behave alike. Defaults to one webhook on one host of the group's name that answers 200 after 10 ms. */
export interface Group {
  webhooks?: number;
  /** The number of hosts that the webhooks are spread over. */
  hosts?: number;
  /** Groups with the same name share a host. */
  host?: string;
  /** The outcome of an attempt, by its number from 1, that starts at a time. */
  answer?: (attempt: number, at: number) => Answer;
}

/** An attempt that started, by its number from 1, and the time of its start in milliseconds. */
export interface StartedAttempt {
  group: string;
  attempt: number;
  at: number;
}

/** Options of a scenario. */
export interface ScenarioOptions {
  /** Settings over the defaults. */
  settings?: Record<string, string>;
  /** The number of worker processes. Defaults to 1. */
  workers?: number;
  /** The time that a statement takes, in milliseconds. Defaults to 1. */
  statementMs?: number;
  /** The size of each payload. Defaults to 1,000. */
  payloadBytes?: number;
  /** Whether the threads are busy all the time, so that the limits of requests in flight do not grow. */
  isBusy?: boolean;
}

const NEVER = new AbortController().signal;

/** The engine of some worker processes in simulated time, with deliveries that the test queues. */
export class Scenario {
  readonly time = new SimulatedTime();
  readonly workers: readonly SimulatedWorker[];
  readonly queue: QueueTable;
  readonly retries: RetryTable;
  /** All attempts that started, in order. */
  readonly started: StartedAttempt[] = [];
  readonly #database: SimulatedDatabase;
  readonly #webhooks: SimulatedWebhook[] = [];
  readonly #groups = new Map<SimulatedWebhook, string>();

  constructor(groups: Record<string, Group>, options: ScenarioOptions = {}) {
    const { settings = {}, workers = 1, statementMs = 1, isBusy = false, payloadBytes = 1_000 } = options;
    const { delivery, dispatch } = readConfig(settings);
    this.#addWebhooks(groups);
    const costs = { visitUs: 8, claimRowUs: 12, recordRowUs: 13 };
    const measuring: Measuring = {
      arrived: () => {},
      started: ({ of, attempts }, at) =>
        void this.started.push({ group: this.#groups.get(of) as string, attempt: attempts + 1, at }),
      recorded: stateAfter,
    };
    this.#database = new SimulatedDatabase(this.time, { processors: 8, roundTripMs: statementMs, ...costs });
    this.queue = new QueueTable(this.#webhooks, this.#database, measuring);
    this.retries = new RetryTable(this.#database, dispatch);
    const around = {
      time: this.time,
      database: this.#database,
      queue: this.queue,
      retryTable: this.retries,
      measurements: measuring,
      delivery,
      deliveryUs: 67,
      payloadBytes,
      workers,
      ...(isBusy ? { utilization: () => 1 } : {}),
    };
    this.workers = Array.from({ length: workers }, (_, n) => new SimulatedWorker(around, n + 1));
  }

  /** The attempts of a group that started. */
  startedOf(group: string): StartedAttempt[] {
    return this.started.filter((attempt) => attempt.group === group);
  }

  /** Queues deliveries for each webhook of a group, now. */
  add(group: string, deliveries: number): void {
    for (const { number } of this.#of(group)) for (let n = 0; n < deliveries; n += 1) this.queue.add(number);
  }

  /** Adds deliveries of each webhook of a group whose first attempt, by a run, fails now. Their webhooks have one retry group. */
  addFailed(group: string, deliveries: number, runId: number): void {
    const claimant = { workerId: 0, runId };
    for (const webhook of this.#of(group)) {
      for (let n = 0; n < deliveries; n += 1)
        this.retries.add(new SimulatedDelivery(webhook, claimant, 0, n, this.time.now), runId);
    }
    this.retries.assignOneGroup(runId);
  }

  /** Makes first attempts for a run until nothing is left, or as long as asked. */
  pump(runId = 1, { worker = 0, lingers = false, forMs = 600_000, stop = NEVER } = {}): Promise<PumpResult> {
    return (this.workers[worker] as SimulatedWorker).pumps.run(runId, { lingers, forMs }, stop);
  }

  /** Makes one pass over the retries of a run. */
  pass(runId = 1, { worker = 0, horizonMs = 30_000, stop = NEVER } = {}): Promise<PassResult> {
    const { retries } = this.workers[worker] as SimulatedWorker;
    return retries.run({ runId, group: 1 }, { horizonMs, forMs: 60_000 }, stop);
  }

  /** Lets time pass, in milliseconds. */
  run(ms: number): Promise<void> {
    return this.time.run(this.time.now + ms);
  }

  /** Lets time pass until a promise is settled. @throws if it is still pending after so much time, in milliseconds */
  async until<T>(promise: Promise<T>, withinMs = 60_000): Promise<T> {
    const end = this.time.now + withinMs;
    let isPending = true;
    const settled = promise.finally(() => {
      isPending = false;
    });
    settled.catch(() => {});
    while (isPending && this.time.now < end) await this.run(Math.min(100, end - this.time.now));
    if (isPending) throw new Error(`still pending after ${withinMs / 1_000} simulated seconds`);
    return settled;
  }

  #of(group: string): SimulatedWebhook[] {
    return this.#webhooks.filter((webhook) => this.#groups.get(webhook) === group);
  }

  #addWebhooks(groups: Record<string, Group>): void {
    const numbers = new Map<string, number>();
    for (const [name, group] of Object.entries(groups)) {
      const { webhooks = 1, hosts = 1, host = name, answer = () => answerOf(200, 10) } = group;
      for (let n = 0; n < webhooks; n += 1) {
        const of = hosts === 1 ? host : `${host} ${n % hosts}`;
        const number = numbers.get(of) ?? numbers.size;
        numbers.set(of, number);
        const receiver: Host = {
          number,
          behaviour: "healthy",
          answer: ({ attempts }, at) => answer(attempts + 1, at),
        };
        const webhook = webhookAt(receiver, this.#webhooks.length);
        this.#webhooks.push(webhook);
        this.#groups.set(webhook, name);
      }
    }
  }
}
