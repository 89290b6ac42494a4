import pino from "pino";
import type { DeliveryConfig } from "../../../src/config/config.ts";
import { Bottlenecks } from "../../../src/delivery/limits/bottlenecks.ts";
import { FailingShare } from "../../../src/delivery/limits/failing-share.ts";
import { Pumps } from "../../../src/delivery/pump.ts";
import type { Recorded, Recorder } from "../../../src/delivery/recorder.ts";
import type { Outcome } from "../../../src/delivery/request/outcome.ts";
import type { Gate } from "../../../src/delivery/request/post.ts";
import { RetryPasses } from "../../../src/delivery/retry-pass.ts";
import { Sender, type SenderParts } from "../../../src/delivery/sender.ts";
import type { AttemptResult } from "../../../src/queue/results.ts";
import { inThisThread } from "../filter-runner.ts";
import type { QueueTable, SimulatedDelivery } from "./queue-table.ts";
import type { Measuring } from "./receivers.ts";
import type { RetryTable } from "./retry-table.ts";
import type { SimulatedDatabase } from "./simulated-database.ts";
import type { SimulatedTime } from "./simulated-time.ts";

/** As in the recorder: results per statement, concurrent statements, and the minimum of results for a second one. */
const MAX_RESULTS_PER_STATEMENT = 200;
const MAX_WRITERS = 2;
const MIN_RESULTS_FOR_SECOND_WRITER = 64;

const log = pino({ level: "silent" });
const CONTENT = { payload: "{}", userId: "user" };
const SIGNATURE = { "webhook-id": "", "webhook-timestamp": "", "webhook-signature": "" };
const SIGNED = () => SIGNATURE;
const NONE: ReadonlySet<bigint> = new Set();

/** Is told of each request that a worker starts, and of its outcome. */
export interface RequestsAccount {
  started(delivery: SimulatedDelivery): void;
  ended(delivery: SimulatedDelivery, outcome: Outcome): void;
}

/** The environment of a worker. */
export interface WorkerSurroundings {
  time: SimulatedTime;
  database: SimulatedDatabase;
  queue: QueueTable;
  retryTable: RetryTable;
  measurements: Measuring;
  delivery: DeliveryConfig;
  /** Thread time per delivery, in microseconds: half when it is sent, half when its response arrives. */
  deliveryUs: number;
  payloadBytes: number;
  workers: number;
  /** Is told of the requests of this worker. */
  account?: RequestsAccount;
  /** The utilization of the thread. Defaults to that by the work of deliveries. */
  utilization?: () => number;
}

/** A worker process: the service's scheduler, sender, pumps and retry passes, on simulated sockets and a simulated database. */
export class SimulatedWorker {
  readonly sender: Sender;
  readonly pumps: Pumps;
  readonly retries: RetryPasses;
  readonly bottlenecks: Bottlenecks;
  /** The number of deliveries claimed and not yet recorded or released. */
  held = 0;
  readonly #around: WorkerSurroundings;
  readonly #recorder: SimulatedRecorder;
  readonly #halfMs: number;
  /** Responses that wait for the thread. */
  readonly #backlog: (() => void)[] = [];
  /** The time at which the thread becomes free. */
  #freeAt = 0;
  /** The total work of the thread, in milliseconds. */
  work = 0;
  /** The time and the work done at the last sample. */
  #looked = { at: 0, done: 0 };

  constructor(around: WorkerSurroundings, workerId: number) {
    this.#around = around;
    const { time, database, queue, retryTable, delivery } = around;
    const { clock } = time;
    this.#halfMs = around.deliveryUs / 2_000;
    this.#recorder = new SimulatedRecorder(around);
    const bottlenecks = new Bottlenecks(clock, log, { add() {} });
    this.bottlenecks = bottlenecks;
    const lease = {
      claim: <T>(work: (id: number) => Promise<T>) => bottlenecks.waitFor(work(workerId)),
      isValid: () => true,
      hasLost: () => false,
      settle: () => {},
      retire: () => {},
      verify: () => {},
    };
    const sender = new Sender(
      {
        clock,
        log,
        post: (_request, outcome, gate, delivery) => this.#post(delivery as SimulatedDelivery, outcome, gate),
        sign: SIGNED,
        additions: () => ({ headers: [] }),
        recorder: this.#recorder,
        filters: { runner: inThisThread, onSlow() {}, onStopped() {} },
        endFiltered: async () => {},
        release: async (_workerId, deliveries) => {
          await database.released(deliveries.length);
          for (const delivery of deliveries as SimulatedDelivery[])
            (delivery.table === "queue" ? queue : retryTable).release(delivery);
        },
        lease,
        watch: { isFresh: () => true, revision: 0n, stoppedSince: async () => NONE },
        contents: this.#contents(),
        share: new FailingShare(delivery.failingShare, around.utilization ?? (() => this.#utilization())),
        bottlenecks,
        handshakes: { backlogMs: 0 },
      },
      { max: delivery.maxInFlight, perHost: delivery.maxPerHost, perWebhook: delivery.maxPerWebhook },
    );
    this.sender = sender;
    const pending = {
      claim: async (...given: Parameters<typeof queue.claim>) => ({
        ...(await queue.claim(...given)),
        workers: around.workers,
      }),
      fanOut: () => database.read(null),
      expectsMore: () => database.read(false),
    };
    this.pumps = new Pumps({ queue: pending, log, lease, sender, clock });
    this.retries = new RetryPasses({
      clock,
      claim: retryTable.claim.bind(retryTable),
      lease,
      sender,
      settle: async (groups) => {
        await database.read(0);
        return groups.map(({ runId, group }) => retryTable.status(runId, group));
      },
    });
  }

  /** Payload room. Each payload belongs to a different event. */
  #contents(): SenderParts["contents"] {
    const { delivery, payloadBytes } = this.#around;
    const most = Math.floor(delivery.memoryBytes / payloadBytes);
    const worker = this;
    return {
      get room() {
        return Math.max(0, most - worker.held);
      },
      async hold(deliveries) {
        worker.held += deliveries.length;
        return [];
      },
      of: () => CONTENT,
      release() {
        worker.held -= 1;
      },
    };
  }

  /** The thread utilization since the previous call. */
  #utilization(): number {
    const { now } = this.#around.time;
    const done = this.work - Math.max(0, this.#freeAt - now);
    const utilization = (done - this.#looked.done) / Math.max(1, now - this.#looked.at);
    this.#looked = { at: now, done };
    return Math.min(1, Math.max(0, utilization));
  }

  /** Adds half a delivery's work. @returns the time at which it is done */
  #workHalf(): number {
    this.work += this.#halfMs;
    this.#freeAt = Math.max(this.#freeAt, this.#around.time.now) + this.#halfMs;
    return this.#freeAt;
  }

  #post(delivery: SimulatedDelivery, outcome: (outcome: Outcome) => void, gate: Gate): void {
    if (!gate.maySend()) {
      gate.withdrawn();
      return;
    }
    const { time, account } = this.#around;
    account?.started(delivery);
    const started = this.#workHalf();
    this.#around.measurements.started(delivery, started);
    const answer = delivery.of.host.answer(delivery, started);
    const end = () => {
      this.#workHalf();
      account?.ended(delivery, answer.outcome);
      outcome(answer.outcome);
    };
    if (answer.durationMs < Number.POSITIVE_INFINITY)
      time.plan(started + answer.durationMs, () => this.#respond(end));
  }

  /** A response arrives, or the timeout expires. */
  #respond(end: () => void): void {
    if (this.#backlog.length > 0 || this.#freeAt > this.#around.time.now) {
      this.#backlog.push(end);
      if (this.#backlog.length === 1) this.#planBacklog();
    } else {
      end();
    }
  }

  #planBacklog(): void {
    this.#around.time.plan(this.#freeAt, () => {
      this.#backlog.shift()?.();
      if (this.#backlog.length > 0) this.#planBacklog();
    });
  }
}

/** Records results in batches, as `Recorder` does. */
class SimulatedRecorder implements Pick<Recorder, "unrecorded" | "record"> {
  readonly #around: WorkerSurroundings;
  readonly #waiting: { result: AttemptResult; recorded: Recorded }[] = [];
  #writers = 0;
  #writing = 0;

  constructor(around: WorkerSurroundings) {
    this.#around = around;
  }

  get unrecorded(): number {
    return this.#waiting.length + this.#writing;
  }

  record(result: AttemptResult, recorded: Recorded): void {
    this.#waiting.push({ result, recorded });
    if (
      this.#writers === 0 ||
      (this.#writers < MAX_WRITERS && this.#waiting.length >= MIN_RESULTS_FOR_SECOND_WRITER)
    ) {
      this.#writers += 1;
      this.#around.time.clock.soon(() => this.#write());
    }
  }

  #write(): void {
    if (this.#waiting.length === 0) {
      this.#writers -= 1;
      return;
    }
    const batch = this.#waiting.splice(0, MAX_RESULTS_PER_STATEMENT);
    this.#writing += batch.length;
    this.#around.database.record(batch.length, () => {
      this.#writing -= batch.length;
      for (const { result, recorded } of batch) recorded(this.#store(result));
      this.#write();
    });
  }

  #store({ token, delivered, runId }: AttemptResult): ReturnType<Measuring["recorded"]> {
    const { queue, retryTable, measurements } = this.#around;
    const delivery = token as SimulatedDelivery;
    const state = measurements.recorded(delivery, delivered);
    (delivery.table === "queue" ? queue : retryTable).remove(delivery);
    if (state === "retrying") retryTable.add(delivery, runId as number);
    return state;
  }
}
