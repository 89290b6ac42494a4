import type { Logger } from "pino";
import type { AttemptCounts, PumpOptions, PumpResult } from "../../workflows/activities.ts";
import type { fanOutStep } from "../events/index.ts";
import { isTransient } from "../lib/pg/index.ts";
import type { Clock } from "../lib/process/index.ts";
import type { Claimant, claimPending, PendingClaim } from "../queue/index.ts";
import { ClaimOwner } from "./claim-owner.ts";
import type { WorkerLease } from "./claims/worker-lease.ts";
import type { ClaimRoom, Sender } from "./sender.ts";

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

/** Dependencies of pumps. */
export interface PumpsParts {
  /** Operations of the database. */
  queue: {
    claim(claimant: Claimant, options: Parameters<typeof claimPending>[2]): Promise<PendingClaim>;
    fanOut(): ReturnType<typeof fanOutStep>;
    /** Whether deliveries are likely to be queued soon, one step after the other: by a replay or a breaker. */
    expectsMore(stop: AbortSignal): Promise<boolean>;
  };
  log: Logger;
  lease: Pick<WorkerLease, "claim">;
  sender: Sender;
  clock: Clock;
}

/**
 * Sends first attempts: claims pending deliveries and passes them to the sender. Only the pump of the latest run
 * claims. An earlier pump transfers its queued deliveries, and ends when its requests in flight have ended.
 */
export class Pumps {
  readonly #parts: PumpsParts;
  #current: Pump | undefined;
  /** The webhook id after which the next claim starts, so that claims rotate over all webhooks. */
  #after = 0n;

  constructor(parts: PumpsParts) {
    this.#parts = parts;
  }

  /** Wakes a lingering pump: deliveries were queued. */
  wake(): void {
    this.#current?.alarm.abort();
  }

  /**
   * Claims and sends for a run until nothing is pending (unless it lingers) and all claimed deliveries have ended.
   *
   * @param stop ends the pump early: requests in flight are completed and recorded, queued deliveries are released
   * @param counts updated in place
   */
  async run(
    runId: number,
    { lingers, forMs }: PumpOptions,
    stop: AbortSignal,
    counts?: AttemptCounts,
  ): Promise<PumpResult> {
    const before = this.#current;
    const pump = new Pump(runId, counts);
    // A run whose pump was stopped or lost starts another one, also after a later run has started its own. If that one
    // took over, the later run would start no more pumps.
    if (before && before.runId > runId) return { ...pump.counts, end: "superseded" };
    const until = this.#parts.clock.now() + forMs;
    const onStop = () => {
      this.#withdraw(pump);
      pump.alarm.abort();
    };
    stop.addEventListener("abort", onStop);
    this.#current = pump;
    if (before) this.#handOver(before);
    let end: PumpResult["end"] = "stopped";
    try {
      end = await this.#claimUntil(pump, lingers, until, stop);
    } catch (error) {
      // An interrupted claim claimed nothing.
      if (!stop.aborted) throw error;
    } finally {
      if (end !== "superseded") this.#withdraw(pump);
      await pump.ended();
      stop.removeEventListener("abort", onStop);
    }
    return { ...pump.counts, end };
  }

  /** Transfers the queued deliveries of an earlier pump to the current one. If that has ended, the earlier one sends them. */
  #handOver(earlier: Pump): void {
    const current = this.#current;
    if (!current || current === earlier) return;
    earlier.alarm.abort();
    this.#parts.sender.transfer(earlier, current);
  }

  /** Releases the queued deliveries of a pump that ends. From then on, it takes over no more. */
  #withdraw(pump: Pump): void {
    if (this.#current === pump) this.#current = undefined;
    this.#parts.sender.withdraw(pump);
  }

  /** Makes rounds of claims over all webhooks. Returns why they end. */
  async #claimUntil(
    pump: Pump,
    lingers: boolean,
    until: number,
    stop: AbortSignal,
  ): Promise<PumpResult["end"]> {
    const { clock, queue, sender } = this.#parts;
    let blockedMs = BLOCKED_PAUSE_MS.min;
    for (;;) {
      const began = clock.now();
      let next: bigint | null = this.#after;
      // The first round may continue that of an earlier pump.
      const isWhole = next === 0n;
      let [found, hasLater, workers] = [0, false, 1];
      pump.alarm = new AbortController();
      while (next !== null) {
        if (stop.aborted) return "stopped";
        if (this.#current !== pump) return "superseded";
        if (clock.now() > until) return "time";
        const room = sender.claimRoom("first", MAX_CLAIMED_PER_STATEMENT, MAX_QUEUED);
        if (!room) {
          await clock.wait(FULL_QUEUE_PAUSE_MS);
          continue;
        }
        const claimed = await this.#claim(pump, room, next, stop);
        ({ next, workers } = claimed);
        found += claimed.touched;
        hasLater ||= claimed.hasLater;
      }
      const { signal } = pump.alarm;
      if (found > 0 || !isWhole) {
        if (found > 0) blockedMs = BLOCKED_PAUSE_MS.min;
        const factor = workers > 1 ? ROUND_PAUSE.sharedFactor : ROUND_PAUSE.aloneFactor;
        const pauseMs = Math.min(ROUND_PAUSE.maxMs, factor * (clock.now() - began));
        if (found < MAX_QUEUED) await clock.wait(pauseMs);
      } else if (hasLater) {
        await clock.wait(blockedMs, { signal });
        blockedMs = Math.min(BLOCKED_PAUSE_MS.max, 2 * blockedMs);
      } else if (lingers || (await queue.expectsMore(stop))) {
        await clock.wait(POLL_MS, { signal });
      } else {
        await pump.ended();
        if (!pump.hasReturned) return "done";
        // What was released, for example because its webhook was changed, is claimed again.
        pump.hasReturned = false;
      }
    }
  }

  /**
   * Runs one claim and, concurrently, one step of fan-out.
   *
   * @returns the claim, and whether it skipped webhooks that may become claimable soon
   */
  async #claim(pump: Pump, { revision, ...room }: ClaimRoom, after: bigint, stop: AbortSignal) {
    const { sender, queue, lease, log } = this.#parts;
    const [step, claimed] = await Promise.all([
      // A failed fan-out must not discard the claimed deliveries.
      queue.fanOut().catch((err) => {
        if (!isTransient(err)) log.error({ err }, "fan-out failed; retried with the next claim");
        return null;
      }),
      lease.claim((workerId) => queue.claim({ workerId, runId: pump.runId }, { ...room, after }), stop),
    ]);
    if (step && step.missing > 0) log.error({ ...step }, "fan-out found fewer recipients than counted");
    this.#after = claimed.next ?? 0n;
    await sender.take(claimed.deliveries, "first", () => pump, revision);
    // While the claim was in progress, this pump was stopped, or that of a later run took over.
    if (stop.aborted) sender.withdraw(pump);
    else this.#handOver(pump);
    return { ...claimed, hasLater: room.excluded.length > 0 || claimed.limited || step !== null };
  }
}

/** The first attempts of one run in this process. */
class Pump extends ClaimOwner {
  /** Ends the pause after a round of claims when deliveries are queued during the round or the pause. */
  alarm = new AbortController();
}
