import type { Logger } from "pino";
import type { AttemptCounts, PumpOptions, PumpResult } from "../../workflows/activities.ts";
import type { fanOutStep } from "../events/index.ts";
import { isTransient } from "../lib/pg/index.ts";
import type { Clock } from "../lib/process/index.ts";
import type { createPendingClaims } from "../queue/index.ts";
import { ClaimOwner } from "./claim-owner.ts";
import type { WorkerLease } from "./claims/worker-lease.ts";
import type { ClaimRoom, Sender } from "./sender.ts";

/** The maximum number of deliveries claimed by one statement. */
const MAX_CLAIMED_PER_STATEMENT = 1_024;
/** The number of queued sendable deliveries above which nothing is claimed. */
const MAX_QUEUED = 512;
/** The pause while the sender has no room for a claim, for example because MAX_QUEUED is exceeded, in milliseconds. */
const FULL_QUEUE_PAUSE_MS = 10;
/**
 * The pause after a cycle of claims over all webhooks that found fewer than MAX_QUEUED deliveries. It is a multiple of the cycle's
 * duration, by a factor for a single worker and one for several workers, up to a maximum in milliseconds. Without the pause, the claims of
 * many workers could use up the database's capacity. A longer pause would delay events that are dispatched on publishing.
 */
const ROUND_PAUSE = { aloneFactor: 1, sharedFactor: 4, maxMs: 50 };
/**
 * The pause after a cycle that found nothing, in milliseconds, while skipped webhooks, tokens that another claim has locked or an unfinished
 * fan-out may have deliveries. It is shorter if a hold ends or a rate limit has a token earlier. It doubles while that lasts, because each
 * claim would only read past the deliveries of receivers that hang or fail.
 */
const BLOCKED_PAUSE_MS = { min: 50, max: 400 };
/** The polling interval of a lingering pump, in milliseconds, in case a notification was missed. */
const POLL_MS = 250;

/** Dependencies of pumps. */
export interface PumpsParts {
  /** Operations of the database. */
  queue: {
    claim: ReturnType<typeof createPendingClaims>;
    fanOut(): ReturnType<typeof fanOutStep>;
    /** Whether something that queues deliveries step by step is likely to queue some soon. */
    expectsMore(stop: AbortSignal): Promise<boolean>;
  };
  log: Logger;
  lease: Pick<WorkerLease, "claim">;
  sender: Sender;
  clock: Clock;
}

/**
 * Sends first attempts: claims pending deliveries and passes them to the sender. Only the pump of the latest run
 * claims. An earlier pump transfers its queued deliveries to it, and ends when its requests in flight have ended.
 */
export class Pumps {
  readonly #parts: PumpsParts;
  #current: Pump | undefined;
  /** The webhook id after which the next claim starts, so that claims rotate over all webhooks. */
  #after = 0n;

  constructor(parts: PumpsParts) {
    this.#parts = parts;
  }

  /** Ends the current pump's pause after a cycle that found nothing. Called when deliveries were queued. */
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
    // A run whose pump was stopped or lost starts another pump, possibly after a later run has started one. The earlier run's pump must not
    // take over: the later run's pump would end as superseded, and the later run would start no other.
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

  /** Transfers the queued deliveries of an earlier pump to the current one. If there is no current pump, the earlier one sends them. */
  #handOver(earlier: Pump): void {
    const current = this.#current;
    if (!current || current === earlier) return;
    earlier.alarm.abort();
    this.#parts.sender.transfer(earlier, current);
  }

  /** Releases the queued deliveries of a pump that ends. From then on, it is not the current pump. */
  #withdraw(pump: Pump): void {
    if (this.#current === pump) this.#current = undefined;
    this.#parts.sender.withdraw(pump);
  }

  /** Repeats the cycle of claims over all webhooks. Returns why the cycles end. */
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
      // The first cycle may start in the middle, where the cycle of an earlier pump ended.
      const isWhole = next === 0n;
      let [found, hasLater, workers, laterMs] = [0, false, 1, Number.POSITIVE_INFINITY];
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
        laterMs = Math.min(laterMs, claimed.laterMs ?? laterMs);
      }
      const { signal } = pump.alarm;
      // The time of the next claim, unless deliveries are queued or released before.
      const nextMs = laterMs > 0 ? Math.max(BLOCKED_PAUSE_MS.min, laterMs) : Number.POSITIVE_INFINITY;
      if (found > 0 || !isWhole) {
        if (found > 0) blockedMs = BLOCKED_PAUSE_MS.min;
        const factor = workers > 1 ? ROUND_PAUSE.sharedFactor : ROUND_PAUSE.aloneFactor;
        const pauseMs = Math.min(ROUND_PAUSE.maxMs, factor * (clock.now() - began));
        if (found < MAX_QUEUED) await clock.wait(pauseMs);
      } else if (hasLater || laterMs === 0) {
        await clock.wait(Math.min(blockedMs, nextMs), { signal });
        blockedMs = Math.min(BLOCKED_PAUSE_MS.max, 2 * blockedMs);
      } else if (lingers || (await queue.expectsMore(stop))) {
        await clock.wait(Math.min(POLL_MS, nextMs), { signal });
      } else if (clock.now() + nextMs <= until) {
        await clock.wait(nextMs, { signal });
      } else {
        // Tokens and ends of holds after the pump's own end are for a later run's pump.
        await pump.ended();
        if (!pump.hasReturned) return "done";
        // Some deliveries were released, for example because their webhook was changed: the next cycle claims them again.
        pump.hasReturned = false;
      }
    }
  }

  /**
   * Runs one claim and, concurrently, one step of fan-out.
   *
   * @returns the claim; `hasLater`: whether skipped webhooks or the fan-out may have deliveries at any time
   */
  async #claim(pump: Pump, { asOf, ...room }: ClaimRoom, after: bigint, stop: AbortSignal) {
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
    await sender.take(claimed.deliveries, "first", () => pump, asOf);
    // During the claim, this pump may have been stopped, or a later run's pump may have taken over.
    if (stop.aborted) sender.withdraw(pump);
    else this.#handOver(pump);
    return { ...claimed, hasLater: room.excluded.length > 0 || step !== null };
  }
}

/** The first attempts of one run in this process. */
class Pump extends ClaimOwner {
  /** Ends the pause after a cycle of claims that found nothing, if deliveries are queued or released during the cycle or the pause. */
  alarm = new AbortController();

  override returned(): void {
    super.returned();
    this.alarm.abort();
  }
}
