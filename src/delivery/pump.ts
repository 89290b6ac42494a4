import type { Logger } from "pino";
import type { AttemptCounts, PumpOptions, PumpResult } from "../../workflows/activities.ts";
import type { fanOutStep } from "../db/events/fan-out.ts";
import { isTransient } from "../db/faults.ts";
import type { Claimant, ClaimResult, claimPending } from "../db/queue/claims.ts";
import type { Clock } from "../process/clock.ts";
import { countIn, noCounts } from "./recorder.ts";
import type { Owner, Sender } from "./sender.ts";
import type { WorkerLease } from "./worker-lease.ts";

/** Deliveries that one statement claims, at most. */
const CLAIM = 1_024;
/** While more than this wait and could be sent, none are claimed. */
const ENOUGH_WAITING = 512;
/** How long it rests while enough waits, in milliseconds. */
const REST_MS = 10;
/**
 * After a round of claims over all webhooks that found little, it pauses for so many times as long as the round took, at
 * most so many milliseconds: the claims of many workers must not take all of the database's time.
 */
const PAUSE = { times: 4, maxMs: 50 };
/** And when all that could be claimed cannot be sent at the moment, in milliseconds. */
const LATER_MS = 50;
/** How often a lingering pump looks for work that nobody announced, in milliseconds. */
const LOOK_MS = 250;

/** What pumps ask of the database. */
export interface PendingQueue {
  claim(claimant: Claimant, options: Parameters<typeof claimPending>[2]): ReturnType<typeof claimPending>;
  fanOut(): ReturnType<typeof fanOutStep>;
}

/**
 * First attempts of a process: claims what is pending and gives it to the sender. Only the pump of the latest run claims;
 * an earlier one hands over what waits, and ends with its last response.
 */
export class Pumps {
  readonly #queue: PendingQueue;
  readonly #log: Logger;
  readonly #lease: Pick<WorkerLease, "claim">;
  readonly #sender: Sender;
  readonly #clock: Clock;
  #current: Pump | undefined;
  /** Where the next claim goes on, so that no webhook is always first. */
  #after = 0n;
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

  /** Deliveries were queued: a lingering pump claims at once. */
  wake(): void {
    this.#wasWoken = true;
    this.#wake();
  }

  /**
   * Works for a run until nothing is left, unless it lingers, and until everything that it claimed has ended.
   *
   * @param stop ends it early: what is in flight is recorded, the rest is given back
   * @param report is given the counts, which go on changing
   */
  async run(
    runId: number,
    { lingers, forMs }: PumpOptions,
    stop: AbortSignal,
    report: (counts: Readonly<AttemptCounts>) => void = () => {},
  ): Promise<PumpResult> {
    const pump = new Pump(runId);
    const until = this.#clock.now() + forMs;
    const onStop = () => {
      this.#sender.withdraw(pump);
      this.#wake();
    };
    stop.addEventListener("abort", onStop);
    report(pump.counts);
    this.#takeOver(pump);
    try {
      const end = await this.#claimUntil(pump, lingers, until, stop);
      if (end !== "done" && end !== "superseded") this.#sender.withdraw(pump);
      await pump.ended();
      return { ...pump.counts, end };
    } catch (error) {
      this.#sender.withdraw(pump);
      await pump.ended();
      // A claim that was waiting for the database when it was time to stop has nothing to tell.
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
    if (before) {
      const moved = this.#sender.transfer(before, pump);
      before.open -= moved;
      pump.open += moved;
      before.check();
    }
    this.#wake();
  }

  async #claimUntil(
    pump: Pump,
    lingers: boolean,
    until: number,
    stop: AbortSignal,
  ): Promise<PumpResult["end"]> {
    const round = new Round(this.#after);
    let began = this.#clock.now();
    for (;;) {
      if (stop.aborted) return "stopped";
      if (this.#current !== pump) return "superseded";
      if (this.#clock.now() > until) return "time";
      if (this.#sender.hasWaiting("first", ENOUGH_WAITING) || this.#sender.room === 0) {
        await this.#clock.wait(REST_MS);
        continue;
      }
      this.#wasWoken = false;
      const more = await this.#claim(pump, round, stop);
      if (more === "nothing") {
        if (!lingers) return "done";
        await this.#rest(LOOK_MS);
      } else if (more === "later") {
        await this.#rest(LATER_MS);
      }
      if (!round.hasEnded) continue;
      const tookMs = this.#clock.now() - began;
      if (more === "more" && round.found < ENOUGH_WAITING)
        await this.#clock.wait(Math.min(PAUSE.maxMs, tookMs * PAUSE.times));
      began = this.#clock.now();
    }
  }

  /** Waits until somebody wakes it, or the time is over. */
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

  /** One claim, beside one step of fan-out; answers whether there is more, now or later. */
  async #claim(pump: Pump, round: Round, stop: AbortSignal): Promise<"more" | "later" | "nothing"> {
    const sender = this.#sender;
    const { revision } = sender;
    const excluded = sender.supplied("first");
    const limit = Math.min(CLAIM, sender.room);
    // A fan-out that fails must not lose what was claimed meanwhile.
    const [step, claimed] = await Promise.all([
      this.#queue.fanOut().catch((err) => this.#fanOutFailed(err)),
      this.#claimFor(pump, limit, round.after, excluded, stop),
    ]);
    if (step && step.missing > 0)
      this.#log.error({ ...step }, "an event had fewer recipients than were counted");
    this.#after = claimed.next ?? 0n;
    pump.open += claimed.deliveries.length;
    await sender.take(claimed.deliveries, "first", pump, revision);
    return round.claimed(claimed, excluded.length > 0 || claimed.limited || step !== null);
  }

  #claimFor(
    { runId }: Pump,
    limit: number,
    after: bigint,
    excluded: readonly bigint[],
    stop: AbortSignal,
  ): Promise<ClaimResult & { next: bigint | null }> {
    return this.#lease.claim(
      (workerId) => this.#queue.claim({ workerId, runId }, { limit, after, excluded }),
      stop,
    );
  }

  #fanOutFailed(err: unknown): null {
    if (!isTransient(err))
      this.#log.error({ err }, "an event could not be fanned out; the next claim tries again");
    return null;
  }
}

/** The first attempts of one run in this process. */
class Pump implements Owner {
  readonly runId: number;
  readonly counts = noCounts();
  /** Claimed and not ended. */
  open = 0;
  #told: () => void = () => {};

  constructor(runId: number) {
    this.runId = runId;
  }

  recorded(...[, , state]: Parameters<Owner["recorded"]>): void {
    countIn(this.counts, state);
    this.returned();
  }

  returned(): void {
    this.open -= 1;
    this.check();
  }

  /** Tells who waits for the end. */
  check(): void {
    if (this.open === 0) this.#told();
  }

  /** Resolves when everything has ended. */
  async ended(): Promise<void> {
    if (this.open === 0) return;
    await new Promise<void>((resolve) => {
      this.#told = resolve;
    });
  }
}

/** Goes round the webhooks by id, and knows when a whole round found nothing. */
class Round {
  after: bigint;
  /** Rows claimed since the round began. */
  found = 0;
  /** The last claim came to the last webhook. */
  hasEnded = false;
  #isWhole: boolean;
  #hasLater = false;

  constructor(after: bigint) {
    this.after = after;
    this.#isWhole = after === 0n;
  }

  /** @param later whether it left out webhooks that may have more in a moment */
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
