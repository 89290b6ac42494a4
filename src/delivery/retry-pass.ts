import pLimit, { type LimitFunction } from "p-limit";
import type { AttemptCounts } from "../../workflows/activities.ts";
import { untilAnswered } from "../db/faults.ts";
import type { Claimant, ClaimedDelivery, claimGroup } from "../db/queue/claims.ts";
import type { GroupStatus } from "../db/queue/retry-groups.ts";
import type { Clock } from "../process/clock.ts";
import type { WorkerLease } from "./claims/worker-lease.ts";
import type { GatheredStatements } from "./gathered-statements.ts";
import { countIn, noCounts } from "./recorder.ts";
import type { Owner, Sender } from "./sender.ts";

/** The maximum number of retries claimed by one statement. */
const MAX_CLAIMED_PER_STATEMENT = 128;
/**
 * The number of a pass's deliveries above which it claims no more while they wait for the budget. Those that wait for receivers do not
 * count: webhooks that hang must not delay the others of their group.
 */
const MAX_OPEN = 64;
/** The maximum number of concurrent claims, so that hundreds of groups do not occupy all database connections. */
const MAX_CONCURRENT_CLAIMS = 4;
/** The number of retries found by one claim from which a pass claims again as soon as half of what it holds has ended. */
const MIN_BUSY = 32;
/**
 * The pause between claims of a group that found all there was, in milliseconds: retries that fall due meanwhile are
 * claimed together. Without it, a steady trickle of retries would cost a claim each.
 */
const PAUSE_MS = { min: 100, max: 1_000 };
/**
 * The pause between queries of the status by a pass that finds nothing to claim: a multiple of the query's duration, because the query
 * counts all retries of the group.
 */
const STATUS_PAUSE_FACTOR = 10;
/** The pause between claims of a group with a rate limit, in milliseconds: first attempts leave them one second in five. */
const RATE_LIMIT_PAUSE_MS = 250;

/** The result of one pass over a retry group. */
export interface PassResult extends AttemptCounts {
  /** The status of the group after the pass. */
  status: GroupStatus;
  /** The last failure, as text for users: `503 from shop.example`. */
  lastFailure: string | null;
  /** False when the pass was stopped. */
  complete: boolean;
}

/** The time limits of a pass, in milliseconds. */
export interface PassOptions {
  /** The pass also sends deliveries that become due within this time. Must be shorter than the retry delay. */
  horizonMs: number;
  /** The time after which the pass stops claiming. */
  forMs: number;
}

/** Dependencies of retry passes. */
export interface RetryPassesParts {
  clock: Clock;
  /** Claims retries of a group in the database. */
  claim: (claimant: Claimant, options: Parameters<typeof claimGroup>[2]) => ReturnType<typeof claimGroup>;
  lease: Pick<WorkerLease, "claim">;
  sender: Sender;
  statements: Pick<GatheredStatements, "groupStatus">;
  /** Removes the retries of paused and deleted webhooks from a run. */
  leavePaused: (runId: number) => Promise<unknown>;
}

/** Sends the due retries of groups through the process's sender. */
export class RetryPasses {
  readonly #parts: RetryPassesParts;
  readonly #limitClaims: LimitFunction = pLimit(MAX_CONCURRENT_CLAIMS);

  constructor(parts: RetryPassesParts) {
    this.#parts = parts;
  }

  /**
   * Sends each delivery of the group that is due within the horizon once. While it waits, a pass uses only memory.
   *
   * @param stop ends the pass early: requests in flight are completed and recorded, queued deliveries are released
   * @param report receives the counts, which are updated in place
   */
  async run(
    { runId, group }: { runId: number; group: number },
    { horizonMs, forMs }: PassOptions,
    stop: AbortSignal,
    report: (counts: Readonly<AttemptCounts>) => void = () => {},
  ): Promise<PassResult> {
    const { clock, sender, statements, leavePaused } = this.#parts;
    const pass = new Pass(runId, clock);
    report(pass.counts);
    const started = clock.now();
    let nextStatus = started;
    const pauseMs = Math.min(PAUSE_MS.max, Math.max(PAUSE_MS.min, horizonMs / 10));
    const status = () => untilAnswered(() => statements.groupStatus(runId, group));
    /** Whether the last claim that found retries found many. */
    let isBusy = false;
    const onStop = () => sender.withdraw(pass);
    stop.addEventListener("abort", onStop);
    try {
      while (!stop.aborted && clock.now() < started + forMs) {
        const isWaiting = pass.open > MAX_OPEN && sender.hasWaiting("retry", MAX_OPEN);
        if (isWaiting || sender.room === 0) {
          await pass.fallenTo(MAX_OPEN, pauseMs);
          continue;
        }
        const { touched, isFull, limited } = await this.#claim(pass, { runId, group }, stop);
        if (touched > 0) isBusy = touched >= MIN_BUSY;
        if (isFull) continue;
        if (isBusy && pass.open > 0) {
          // If a webhook had none queued until the end of a pause, its first attempts would take the turns of due retries.
          await pass.fallenTo(Math.floor(pass.open / 2), pauseMs);
          continue;
        }
        let waitMs = limited ? RATE_LIMIT_PAUSE_MS : pauseMs;
        if (touched === 0 && pass.open === 0) {
          if (clock.now() > started + horizonMs) break;
          // With a rate limit, some are due.
          if (!limited && clock.now() >= nextStatus) {
            const asked = clock.now();
            const { open, delayMs } = await status();
            const answered = clock.now();
            if (open === 0 || answered + delayMs > started + horizonMs) break;
            waitMs = Math.max(delayMs, pauseMs);
            nextStatus = answered + STATUS_PAUSE_FACTOR * (answered - asked);
          }
        }
        await clock.wait(waitMs, { signal: stop });
      }
    } finally {
      stop.removeEventListener("abort", onStop);
      sender.withdraw(pass);
      await pass.ended();
    }
    let left = await status();
    if (left.hasPaused) {
      // Another run retries them once they are resumed: this one may ask for its retries much later.
      await untilAnswered(() => leavePaused(runId));
      // One may have been resumed just before.
      left = await status();
    }
    return { ...pass.counts, status: left, lastFailure: pass.lastFailure, complete: !stop.aborted };
  }

  async #claim(
    pass: Pass,
    { runId, group }: { runId: number; group: number },
    stop: AbortSignal,
  ): Promise<{ touched: number; isFull: boolean; limited: boolean }> {
    const { sender, lease, claim } = this.#parts;
    const { revision } = sender;
    const excluded = sender.skipped("retry");
    const limit = Math.min(MAX_CLAIMED_PER_STATEMENT, sender.room);
    try {
      const claimed = await this.#limitClaims(() =>
        lease.claim((workerId) => claim({ workerId, runId }, { group, limit, excluded }), stop),
      );
      pass.take(claimed.deliveries);
      await sender.take(claimed.deliveries, "retry", pass, revision);
      const { touched, limited } = claimed;
      return { touched, isFull: touched === limit, limited };
    } catch (error) {
      // An interrupted claim claimed nothing.
      if (!stop.aborted) throw error;
      return { touched: 0, isFull: false, limited: false };
    }
  }
}

/** The retries of one group that this process holds. */
class Pass implements Owner {
  readonly runId: number;
  readonly counts = noCounts();
  lastFailure: string | null = null;
  /** The number of claimed deliveries that have not ended. */
  open = 0;
  /** Hosts of all claimed deliveries. */
  readonly hosts = new Set<string>();
  readonly #clock: Clock;
  #wanted = 0;
  #tell: () => void = () => {};

  constructor(runId: number, clock: Clock) {
    this.runId = runId;
    this.#clock = clock;
  }

  take(deliveries: readonly ClaimedDelivery[]): void {
    this.open += deliveries.length;
    for (const { webhook } of deliveries) this.hosts.add(webhook.target.host);
  }

  recorded(...[delivery, outcome, state]: Parameters<Owner["recorded"]>): void {
    countIn(this.counts, state);
    if (!outcome.delivered) {
      const { host } = delivery.webhook.target;
      const { status, error } = outcome;
      this.lastFailure = `${[status, error].filter((each) => each !== null).join(", ")} from ${host}`;
    }
    this.returned();
  }

  returned(): void {
    this.open -= 1;
    if (this.open <= this.#wanted) this.#tell();
  }

  /** Resolves when at most `open` deliveries are open, or after `withinMs` milliseconds. */
  async fallenTo(open: number, withinMs: number): Promise<void> {
    this.#wanted = open;
    await new Promise<void>((resolve) => {
      const cancel = this.#clock.after(withinMs, resolve);
      this.#tell = () => {
        cancel();
        resolve();
      };
    });
  }

  async ended(): Promise<void> {
    while (this.open > 0) await this.fallenTo(0, 1_000);
  }
}
