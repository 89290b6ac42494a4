import type { Logger } from "pino";
import type { AttemptCounts, PumpOptions, PumpResult } from "../../workflows/activities.ts";
import type { fanOutStep } from "../db/events/fan-out.ts";
import { isTransient } from "../db/faults.ts";
import type { Claimant, claimPending, PendingClaim } from "../db/queue/claims.ts";
import type { Clock } from "../process/clock.ts";
import type { WorkerLease } from "./claims/worker-lease.ts";
import { countIn, noCounts } from "./recorder.ts";
import type { Owner, Sender } from "./sender.ts";

/** The maximum number of deliveries claimed by one statement. */
const MAX_CLAIMED_PER_STATEMENT = 1_024;
/** The number of queued sendable deliveries above which nothing is claimed. */
const MAX_QUEUED = 512;
/** The pause while MAX_QUEUED is exceeded, in milliseconds. */
const FULL_QUEUE_PAUSE_MS = 10;
/**
 * The pause after a round of claims over all webhooks that found little: a multiple of the round's duration, for a single
 * worker and for one of several, with a maximum in milliseconds. Without it, the claims of many workers could use up the
 * database's capacity. A long pause delays events that are dispatched on publishing.
 */
const ROUND_PAUSE = { aloneFactor: 1, sharedFactor: 4, maxMs: 50 };
/**
 * The pause when nothing claimable can be sent at the moment, in milliseconds. It doubles while that lasts: beside receivers that
 * hang or fail, each claim would only read past their deliveries.
 */
const BLOCKED_PAUSE_MS = { min: 50, max: 400 };
/** The polling interval of a lingering pump, in milliseconds, in case a notification was missed. */
const POLL_MS = 250;

/** Database operations used by pumps. */
export interface PendingQueue {
  claim(claimant: Claimant, options: Parameters<typeof claimPending>[2]): ReturnType<typeof claimPending>;
  fanOut(): ReturnType<typeof fanOutStep>;
  /** Whether deliveries are likely to be queued soon, one step after the other: by a replay or a breaker. */
  expectsMore(stop: AbortSignal): Promise<boolean>;
}

/**
 * Sends first attempts: claims pending deliveries and passes them to the sender. Only the pump of the latest run
 * claims. An earlier pump transfers its queued deliveries, and ends when its requests in flight have ended.
 */
export class Pumps {
  readonly #queue: PendingQueue;
  readonly #log: Logger;
  readonly #lease: Pick<WorkerLease, "claim">;
  readonly #sender: Sender;
  readonly #clock: Clock;
  #current: Pump | undefined;
  /** The webhook id after which the next claim starts, so that claims rotate over all webhooks. */
  #after = 0n;
  /** The number of workers that claim. */
  #workers = 1;
  #wake: () => void = () => {};
  #wasWoken = false;

  constructor(parts: {
    queue: PendingQueue;
    log: Logger;
    lease: Pick<WorkerLease, "claim">;
    sender: Sender;
    clock: Clock;
  }) {
    this.#queue = parts.queue;
    this.#log = parts.log;
    this.#lease = parts.lease;
    this.#sender = parts.sender;
    this.#clock = parts.clock;
  }

  /** Wakes a lingering pump: deliveries were queued. */
  wake(): void {
    this.#wasWoken = true;
    this.#wake();
  }

  /**
   * Claims and sends for a run until nothing is pending (unless it lingers) and all claimed deliveries have ended.
   *
   * @param stop ends the pump early: requests in flight are completed and recorded, queued deliveries are released
   * @param report receives the counts, which are updated in place
   */
  async run(
    runId: number,
    { lingers, forMs }: PumpOptions,
    stop: AbortSignal,
    report: (counts: Readonly<AttemptCounts>) => void = () => {},
  ): Promise<PumpResult> {
    // A run whose pump was stopped or lost starts another one, also after a later run has started its own. If that one
    // took over, the later run would start no more pumps.
    if (this.#current && this.#current.runId > runId) return { ...noCounts(), end: "superseded" };
    const pump = new Pump(runId);
    const until = this.#clock.now() + forMs;
    const onStop = () => {
      this.#withdraw(pump);
      this.#wake();
    };
    stop.addEventListener("abort", onStop);
    report(pump.counts);
    this.#takeOver(pump);
    try {
      for (;;) {
        const end = await this.#claimUntil(pump, lingers, until, stop);
        if (end !== "done" && end !== "superseded") this.#withdraw(pump);
        await pump.ended();
        // What was released since the last claim, for example because the webhook was changed, is claimed again.
        if (end !== "done" || !pump.takeReturned() || stop.aborted) return { ...pump.counts, end };
      }
    } catch (error) {
      this.#withdraw(pump);
      await pump.ended();
      // An interrupted claim claimed nothing.
      if (!stop.aborted) throw error;
      return { ...pump.counts, end: "stopped" };
    } finally {
      if (this.#current === pump) this.#current = undefined;
      stop.removeEventListener("abort", onStop);
    }
  }

  #takeOver(pump: Pump): void {
    const before = this.#current;
    this.#current = pump;
    if (before) this.#handOver(before);
    this.#wake();
  }

  /** Transfers the queued deliveries of an earlier pump to the current one. If that has ended, the earlier one sends them. */
  #handOver(earlier: Pump): void {
    const current = this.#current;
    if (!current) return;
    const moved = this.#sender.transfer(earlier, current);
    earlier.open -= moved;
    current.open += moved;
    earlier.check();
  }

  /** Releases the queued deliveries of a pump that ends. From then on, it takes over no more. */
  #withdraw(pump: Pump): void {
    if (this.#current === pump) this.#current = undefined;
    this.#sender.withdraw(pump);
  }

  async #claimUntil(
    pump: Pump,
    lingers: boolean,
    until: number,
    stop: AbortSignal,
  ): Promise<PumpResult["end"]> {
    const round = new Round(this.#after);
    let began = this.#clock.now();
    let blockedMs = BLOCKED_PAUSE_MS.min;
    for (;;) {
      if (stop.aborted) return "stopped";
      if (this.#current !== pump) return "superseded";
      if (this.#clock.now() > until) return "time";
      if (this.#sender.hasWaiting("first", MAX_QUEUED) || this.#sender.room === 0) {
        await this.#clock.wait(FULL_QUEUE_PAUSE_MS);
        continue;
      }
      this.#wasWoken = false;
      const more = await this.#claim(pump, round, stop);
      if (more === "nothing") {
        if (!lingers && !(await this.#queue.expectsMore(stop))) return "done";
        await this.#rest(POLL_MS);
      } else if (more === "later") {
        await this.#rest(blockedMs);
        blockedMs = Math.min(BLOCKED_PAUSE_MS.max, 2 * blockedMs);
      } else if (round.found > 0) {
        blockedMs = BLOCKED_PAUSE_MS.min;
      }
      if (!round.hasEnded) continue;
      const tookMs = this.#clock.now() - began;
      if (more === "more" && round.found < MAX_QUEUED) await this.#clock.wait(this.#roundPauseMs(tookMs));
      began = this.#clock.now();
    }
  }

  #roundPauseMs(tookMs: number): number {
    const { aloneFactor, sharedFactor, maxMs } = ROUND_PAUSE;
    return Math.min(maxMs, tookMs * (this.#workers > 1 ? sharedFactor : aloneFactor));
  }

  /** Resolves when woken or after the timeout. */
  #rest(ms: number): Promise<void> {
    if (this.#wasWoken) return Promise.resolve();
    return new Promise((resolve) => {
      const end = () => {
        cancel();
        this.#wake = () => {};
        resolve();
      };
      const cancel = this.#clock.after(ms, end);
      this.#wake = end;
    });
  }

  /** Runs one claim and, concurrently, one step of fan-out. Returns whether more can be claimed, now or later. */
  async #claim(pump: Pump, round: Round, stop: AbortSignal): Promise<"more" | "later" | "nothing"> {
    const sender = this.#sender;
    const { revision } = sender;
    const excluded = sender.skipped("first");
    const limit = Math.min(MAX_CLAIMED_PER_STATEMENT, sender.room);
    // A failed fan-out must not discard the claimed deliveries.
    const [step, claimed] = await Promise.all([
      this.#queue.fanOut().catch((err) => this.#fanOutFailed(err)),
      this.#claimFor(pump, limit, round.after, excluded, stop),
    ]);
    if (step && step.missing > 0) this.#log.error({ ...step }, "fan-out found fewer recipients than counted");
    this.#after = claimed.next ?? 0n;
    this.#workers = claimed.workers;
    pump.open += claimed.deliveries.length;
    await sender.take(claimed.deliveries, "first", pump, revision);
    // While the claim was in progress, this pump was stopped, or that of a later run took over.
    if (stop.aborted) sender.withdraw(pump);
    else if (this.#current !== pump) this.#handOver(pump);
    return round.claimed(claimed, excluded.length > 0 || claimed.limited || step !== null);
  }

  #claimFor(
    { runId }: Pump,
    limit: number,
    after: bigint,
    excluded: readonly bigint[],
    stop: AbortSignal,
  ): Promise<PendingClaim> {
    return this.#lease.claim(
      (workerId) => this.#queue.claim({ workerId, runId }, { limit, after, excluded }),
      stop,
    );
  }

  #fanOutFailed(err: unknown): null {
    if (!isTransient(err)) this.#log.error({ err }, "fan-out failed; retried with the next claim");
    return null;
  }
}

/** The first attempts of one run in this process. */
class Pump implements Owner {
  readonly runId: number;
  readonly counts = noCounts();
  /** The number of claimed deliveries that have not ended. */
  open = 0;
  #hasReturned = false;
  #told: () => void = () => {};

  constructor(runId: number) {
    this.runId = runId;
  }

  recorded(...[, , state]: Parameters<Owner["recorded"]>): void {
    countIn(this.counts, state);
    this.#end();
  }

  returned(): void {
    this.#hasReturned = true;
    this.#end();
  }

  /** Whether claims have ended without an attempt since the last call. */
  takeReturned(): boolean {
    const has = this.#hasReturned;
    this.#hasReturned = false;
    return has;
  }

  #end(): void {
    this.open -= 1;
    this.check();
  }

  /** Resolves `ended` if no delivery is open. */
  check(): void {
    if (this.open === 0) this.#told();
  }

  /** Resolves when all claimed deliveries have ended. */
  async ended(): Promise<void> {
    if (this.open === 0) return;
    await new Promise<void>((resolve) => {
      this.#told = resolve;
    });
  }
}

/** Iterates over the webhooks by id, and detects a complete round that found nothing. */
class Round {
  after: bigint;
  /** The number of rows claimed since the round began. */
  found = 0;
  /** Whether the last claim reached the last webhook. */
  hasEnded = false;
  #isWhole: boolean;
  #hasLater = false;

  constructor(after: bigint) {
    this.after = after;
    this.#isWhole = after === 0n;
  }

  /** @param later whether the claim skipped webhooks that may become claimable soon */
  claimed(claim: { touched: number; next: bigint | null }, later: boolean): "more" | "later" | "nothing" {
    if (this.hasEnded) this.found = 0;
    this.hasEnded = claim.next === null;
    this.found += claim.touched;
    this.#hasLater ||= later;
    this.after = claim.next ?? 0n;
    if (claim.next !== null) return "more";
    const [isWhole, hasLater] = [this.#isWhole, this.#hasLater];
    this.#isWhole = true;
    this.#hasLater = false;
    if (this.found > 0 || !isWhole) return "more";
    return hasLater ? "later" : "nothing";
  }
}
