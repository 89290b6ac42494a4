import { Worker } from "node:worker_threads";
import type { Logger } from "pino";
import { type StoredCatalogue, storedEventTypes } from "../event-types/index.ts";
import type { FilterJob, FilterResult, FilterRunner } from "./filter-runner.ts";
import { JOBS, NONE, PHASES, SENT, type ThreadData, type ThreadResult } from "./thread-messages.ts";
import { type TakenJob, TimeShares } from "./time-shares.ts";

const PROGRAM = new URL("thread.ts", import.meta.url);
/**
 * The estimated time of the jobs that a thread is sent together, in milliseconds. Jobs of other owners wait for them. At
 * least one job is sent, and at most MAX_SENT.
 */
const SENT_MS = 5;
const MAX_SENT = 128;
/** The number of messages that a thread has: while it handles one, the next one waits. */
const MAX_MESSAGES = 2;
/** The number of looks at a thread per time limit. */
const LOOKS_PER_LIMIT = 2;
/** The number of looks after which a thread that does not say how long it worked has exceeded the limit. */
const MAX_SILENT_LOOKS = 20;
/** The memory of a thread, in mebibytes. A thread that needs more ends. */
const MEMORY = { maxOldGenerationSizeMb: 128, maxYoungGenerationSizeMb: 16 };
/** The memory that registered event types take in a thread, for each byte of their files. */
const BYTES_PER_DESCRIPTOR_BYTE = 20;
/** The time after the end of a thread for which another one is kept ready, in milliseconds: to start takes longer than the limit. */
const SPARE_MS = 60_000;

/** A compilation or an evaluation, as far as it was observed. */
interface Phase {
  /** The number of phases that the thread has started. */
  number: number;
  /** The processor time of the thread when it was first asked during the phase, in milliseconds. */
  fromMs: number | undefined;
  /** The number of looks since the thread last answered. */
  silent: number;
}

/** A thread with the jobs that it has not answered. */
interface Thread {
  worker: Worker;
  /** The registered event types that it knows. */
  catalogue: StoredCatalogue;
  progress: ThreadData["progress"];
  outcomes: ThreadData["outcomes"];
  sent: TakenJob[];
  messages: number;
  answered: number;
  phase: Phase;
}

/**
 * Evaluates filters in a separate thread, which starts with the first job. If an evaluation takes more processor time than the
 * limit, the thread is ended: the result is `slow`, and another thread continues with the other jobs.
 * Owners, and the webhooks of an owner, share the thread's time evenly.
 */
export class FilterThreads implements FilterRunner {
  readonly #limitMs: number;
  readonly #log: Logger;
  readonly #queue = new TimeShares();
  #thread: Thread | undefined;
  #spare: Thread | undefined;
  /** The time until which a spare thread is kept ready. */
  #spareUntil = 0;
  #isPlanned = false;
  #timer: NodeJS.Timeout | undefined;

  /** @param limitMs the limit of a compilation and of an evaluation, in milliseconds of processor time */
  constructor(limitMs: number, log: Logger) {
    this.#limitMs = limitMs;
    this.#log = log;
  }

  run(job: FilterJob): void {
    this.#queue.push(job);
    if (this.#isPlanned) return;
    this.#isPlanned = true;
    // The jobs of this turn of the event loop are sent together.
    setImmediate(() => {
      this.#isPlanned = false;
      this.#send();
    });
  }

  /** Ends the threads. Jobs without a result get none. */
  async close(): Promise<void> {
    clearInterval(this.#timer);
    const threads = [this.#thread, this.#spare];
    this.#thread = undefined;
    this.#spare = undefined;
    await Promise.all(threads.map((thread) => thread?.worker.terminate()));
  }

  #send(): void {
    // Changed event types need another thread: after the jobs that this one has.
    if (this.#thread && this.#thread.catalogue !== storedEventTypes()) {
      if (this.#thread.messages > 0) return;
      void this.#thread.worker.terminate();
      this.#thread = undefined;
    }
    while ((this.#thread?.messages ?? 0) < MAX_MESSAGES) {
      const jobs = this.#takeJobs();
      if (jobs.length === 0) break;
      this.#thread ??= this.#start();
      this.#thread.sent.push(...jobs);
      this.#thread.messages += 1;
      this.#thread.worker.postMessage(jobs.map(({ job: { filter, event } }) => ({ filter, event })));
    }
    if (!this.#thread || this.#thread.sent.length === 0) return;
    this.#timer ??= setInterval(() => this.#look(), this.#limitMs / LOOKS_PER_LIMIT).unref();
  }

  #takeJobs(): TakenJob[] {
    const jobs: TakenJob[] = [];
    for (let ms = 0; ms < SENT_MS && jobs.length < MAX_SENT; ) {
      const taken = this.#queue.take();
      if (!taken) break;
      jobs.push(taken);
      ms += taken.estimateMs;
    }
    return jobs;
  }

  #start(): Thread {
    const progress = new Int32Array(new SharedArrayBuffer(2 * Int32Array.BYTES_PER_ELEMENT));
    const outcomes = new Int8Array(new SharedArrayBuffer(MAX_MESSAGES * MAX_SENT));
    const catalogue = storedEventTypes();
    const { files, types } = catalogue;
    const workerData: ThreadData = { progress, outcomes, catalogue: { files, types } };
    const bytes = files.reduce((sum, { descriptor }) => sum + descriptor.length, 0);
    const memory = Math.ceil((bytes * BYTES_PER_DESCRIPTOR_BYTE) / 2 ** 20);
    const resourceLimits = { ...MEMORY, maxOldGenerationSizeMb: MEMORY.maxOldGenerationSizeMb + memory };
    // Without the options of the process: a module that it preloads is not meant for this thread.
    const options = { workerData, resourceLimits, execArgv: [], name: "filters" };
    const worker = new Worker(PROGRAM, options);
    const phase = { number: 0, fromMs: undefined, silent: 0 };
    const thread: Thread = {
      worker,
      catalogue,
      progress,
      outcomes,
      sent: [],
      messages: 0,
      answered: 0,
      phase,
    };
    worker.unref();
    worker.on("message", (results: ThreadResult[]) => this.#answer(thread, results));
    worker.on("error", (err: Error & { code?: string }) => {
      if (err.code === "ERR_WORKER_OUT_OF_MEMORY") {
        this.#replace(thread, {
          sent: true,
          problem: "slow",
          error: "takes too much memory; use fewer loops",
        });
        return;
      }
      this.#log.error({ err }, "a thread for filters failed");
      this.#replace(thread, {
        sent: true,
        problem: "failed",
        error: "the thread for filters failed; see the log",
      });
    });
    return thread;
  }

  #answer(thread: Thread, results: readonly ThreadResult[]): void {
    if (thread !== this.#thread) return;
    thread.messages -= 1;
    thread.answered += results.length;
    const answered = thread.sent.splice(0, results.length);
    this.#send();
    for (const [n, taken] of answered.entries()) this.#finish(taken, ...(results[n] as ThreadResult));
  }

  #rest(): void {
    if (performance.now() < this.#spareUntil) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
    void this.#spare?.worker.terminate();
    this.#spare = undefined;
  }

  /** Ends a thread whose current compilation or evaluation has exceeded the limit. */
  #look(): void {
    const thread = this.#thread;
    if (!thread || thread.sent.length === 0) {
      this.#rest();
      return;
    }
    const number = Atomics.load(thread.progress, PHASES);
    if (number !== thread.phase.number) thread.phase = { number, fromMs: undefined, silent: 0 };
    const { phase } = thread;
    // A thread that starts is not limited.
    if (number === 0) return;
    phase.silent += 1;
    if (phase.silent > MAX_SILENT_LOOKS) {
      this.#replace(thread, this.#slow());
      return;
    }
    if (phase.silent > 1) return;
    thread.worker.cpuUsage().then(
      ({ user, system }) => {
        if (thread !== this.#thread || Atomics.load(thread.progress, PHASES) !== number) return;
        phase.silent = 0;
        const usedMs = (user + system) / 1_000;
        phase.fromMs ??= usedMs;
        if (usedMs - phase.fromMs >= this.#limitMs) this.#replace(thread, this.#slow());
      },
      // The thread has ended.
      () => {},
    );
  }

  /** Finishes a job whose outcome the thread has noted, but not answered. @param nth its place among those sent */
  #finishKnown({ outcomes, answered }: Thread, taken: TakenJob, nth: number): boolean {
    const outcome = outcomes[(answered + nth) % outcomes.length];
    if (outcome === NONE) return false;
    this.#finish(taken, { sent: outcome === SENT }, taken.estimateMs);
    return true;
  }

  #finish(taken: TakenJob, result: FilterResult, tookMs: number): void {
    const { isWanted, done } = taken.job;
    const estimateMs = this.#queue.took(taken, tookMs);
    if (isWanted?.() !== false) done(result, estimateMs);
  }

  #slow(): FilterResult {
    const error = `takes longer than the ${this.#limitMs} ms allowed (FILTER_TIMEOUT); use fewer loops and shorter regular expressions`;
    return { sent: true, problem: "slow", error };
  }

  /** Ends a thread, whose current job gets this result, and continues with another one. */
  #replace(thread: Thread, result: FilterResult): void {
    if (thread === this.#spare) this.#spare = undefined;
    if (thread !== this.#thread) return;
    void thread.worker.terminate();
    const current = Math.max(0, Atomics.load(thread.progress, JOBS) - thread.answered - 1);
    const waiting = thread.sent.splice(current);
    const ended = waiting.shift();
    const unfinished = thread.sent.filter((taken, n) => !this.#finishKnown(thread, taken, n));
    this.#queue.putBack([...unfinished, ...waiting]);
    this.#thread = this.#spare;
    this.#spare = undefined;
    if (ended) this.#finish(ended, result, this.#limitMs);
    this.#send();
    // A thread that fails at its start is not started again without a job.
    if (result.problem !== "slow") return;
    this.#spare = this.#start();
    this.#spareUntil = performance.now() + SPARE_MS;
  }
}
