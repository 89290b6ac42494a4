import type { AttemptCounts } from "../../workflows/activities.ts";
import { untilAnswered } from "../db/faults.ts";
import type { ClaimedRetry, claimDue, RetryClaim } from "../db/queue/claims.ts";
import { failureInWords, type GroupKey, type GroupStatus } from "../db/queue/retry-groups.ts";
import type { Clock } from "../process/clock.ts";
import type { WorkerLease } from "./claims/worker-lease.ts";
import { countIn, noCounts } from "./recorder.ts";
import type { Owner, Sender } from "./sender.ts";

/** The maximum number of retries claimed by one statement. */
const MAX_CLAIMED_PER_STATEMENT = 256;
/** The number of queued sendable retries above which nothing is claimed. Those that wait for their receivers do not count. */
const MAX_QUEUED = 128;
/** The number of retries found by one claim from which the next follows as soon as half of what the passes hold has ended. */
const MIN_BUSY = 32;
/**
 * The pause between claims for a pass, in milliseconds: a tenth of its horizon within these limits. Retries that fall due meanwhile
 * are claimed together.
 */
const PAUSE_MS = { min: 100, max: 1_000 };
/** The pause between claims for a pass that waits for a rate limit, in milliseconds: first attempts leave retries one second in five. */
const RATE_LIMIT_PAUSE_MS = 250;
/**
 * The pause after a claim that found little, and between queries of the status, as a multiple of the statement's duration, and its
 * maximum in milliseconds. A claim visits all webhooks of the groups, and a query counts all of their retries.
 */
const STATEMENT_PAUSE = { factor: 10, maxMs: 5_000 };

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
  /** Claims due retries of groups in the database. */
  claim: (workerId: number, options: Parameters<typeof claimDue>[2]) => Promise<RetryClaim>;
  lease: Pick<WorkerLease, "claim">;
  sender: Pick<Sender, "take" | "withdraw" | "skipped" | "room" | "revision" | "hasWaiting">;
  /** Reads the status of groups, in order. */
  statuses: (groups: readonly GroupKey[]) => Promise<GroupStatus[]>;
  /** Removes the retries of paused and deleted webhooks from a run. */
  leavePaused: (runId: number) => Promise<unknown>;
}

/**
 * Sends the due retries of groups through the process's sender. One loop claims for all passes by one statement, and reads the status
 * of all passes that seem to be at their end by another. While a pass waits, it uses only memory.
 */
export class RetryPasses {
  readonly #parts: RetryPassesParts;
  readonly #passes = new Set<Pass>();
  #isRunning = false;
  /** Ends the claim in progress when no pass needs it. */
  #claiming = new AbortController();
  /** The earliest times of the next claim and query of the status. */
  #nextClaim = Number.NEGATIVE_INFINITY;
  #nextStatus = Number.NEGATIVE_INFINITY;
  /** Whether the last claim that found retries found many. */
  #isBusy = false;
  /** The number of claimed retries of all passes that have not ended, and the number at which the loop is woken. */
  #open = 0;
  #wanted = -1;
  #wake: () => void = () => {};

  constructor(parts: RetryPassesParts) {
    this.#parts = parts;
  }

  /**
   * Sends each delivery of the group that is due within the horizon once.
   *
   * @param stop ends the pass early: requests in flight are completed and recorded, queued deliveries are released
   * @param report receives the counts, which are updated in place
   */
  async run(
    { runId, group }: GroupKey,
    { horizonMs, forMs }: PassOptions,
    stop: AbortSignal,
    report: (counts: Readonly<AttemptCounts>) => void = () => {},
  ): Promise<PassResult> {
    const { sender, clock } = this.#parts;
    const now = clock.now();
    const pass: Pass = new Pass({ runId, group }, () => this.#returned(pass));
    pass.pauseMs = Math.min(PAUSE_MS.max, Math.max(PAUSE_MS.min, horizonMs / 10));
    pass.claimAt = now;
    pass.horizon = now + horizonMs;
    pass.until = now + forMs;
    report(pass.counts);
    const onStop = () => this.#leave(pass);
    stop.addEventListener("abort", onStop);
    this.#passes.add(pass);
    if (stop.aborted) onStop();
    this.#start();
    try {
      const status = await pass.end.promise;
      return { ...pass.counts, status, lastFailure: pass.lastFailure, complete: !stop.aborted };
    } finally {
      stop.removeEventListener("abort", onStop);
      this.#passes.delete(pass);
      sender.withdraw(pass);
      await pass.ended();
    }
  }

  #start(): void {
    this.#wake();
    if (this.#isRunning) return;
    this.#isRunning = true;
    void this.#loop();
  }

  /** Never rejects. */
  async #loop(): Promise<void> {
    const { clock, sender } = this.#parts;
    while (this.#passes.size > 0) {
      const now = clock.now();
      const passes = [...this.#passes];
      for (const pass of passes) if (now >= pass.until) this.#leave(pass);
      const left = passes.filter((pass) => pass.open === 0 && (pass.hasLeft || pass.isOverAt(now)));
      const claiming = passes.filter(({ hasLeft, claimAt }) => !hasLeft && claimAt <= now);
      if (left.length > 0) {
        await this.#end(left);
      } else if (claiming.length === 0 || now < this.#nextClaim) {
        const next = passes.map(({ hasLeft, claimAt, until }) =>
          hasLeft ? now + PAUSE_MS.max : Math.min(Math.max(claimAt, this.#nextClaim), until),
        );
        // If a webhook had none queued until the end of a pause, its first attempts would take the turns of due retries.
        if (await this.#rest(Math.min(...next) - now, this.#isBusy ? this.#open >> 1 : -1)) {
          this.#nextClaim = now;
          for (const pass of passes) if (pass.open > 0) pass.claimAt = now;
        }
      } else if (sender.room === 0 || sender.hasWaiting("retry", MAX_QUEUED)) {
        await this.#rest(PAUSE_MS.min, this.#open >> 1);
      } else {
        await this.#claim(claiming);
      }
    }
    this.#isRunning = false;
  }

  /** Claims for some passes, and passes what they get to the sender. */
  async #claim(passes: readonly Pass[]): Promise<void> {
    const { sender, lease, claim, clock } = this.#parts;
    const { revision } = sender;
    const excluded = sender.skipped("retry");
    const limit = Math.min(MAX_CLAIMED_PER_STATEMENT, sender.room);
    // One pass of a group, if Temporal has started it anew while this process still works on it.
    const byGroup = new Map(passes.map((pass) => [nameOf(pass.key), pass]));
    const groups = [...byGroup.values()].map(({ key }) => key);
    const began = clock.now();
    this.#claiming = new AbortController();
    let claimed: RetryClaim;
    try {
      claimed = await lease.claim(
        (workerId) => claim(workerId, { groups, limit, excluded }),
        this.#claiming.signal,
      );
    } catch (error) {
      // An interrupted claim claimed nothing.
      if (!this.#claiming.signal.aborted) for (const pass of passes) this.#fail(pass, error);
      return;
    }
    const { touched, deliveries } = claimed;
    if (touched > 0) this.#isBusy = touched >= MIN_BUSY;
    const now = clock.now();
    const limited = new Set(claimed.limited.map(nameOf));
    for (const pass of passes) {
      pass.mayFindMore = touched === limit || limited.has(nameOf(pass.key));
      const pauseMs = limited.has(nameOf(pass.key)) ? RATE_LIMIT_PAUSE_MS : pass.pauseMs;
      pass.claimAt = touched === limit ? now : now + pauseMs;
    }
    const costMs = touched >= MIN_BUSY ? 0 : pauseAfter(now - began);
    // Passes that begin later join the next claim.
    this.#nextClaim = Math.max(now + costMs, Math.min(...passes.map(({ claimAt }) => claimAt)));
    await this.#take(
      Map.groupBy(deliveries, (delivery) => byGroup.get(nameOf(delivery)) as Pass),
      revision,
    );
    if (touched === limit || now < this.#nextStatus) return;
    // With a rate limit, some are due.
    const isIdle = (pass: Pass) => now > pass.horizon || !limited.has(nameOf(pass.key));
    const idle = passes.filter((pass) => pass.open === 0 && isIdle(pass));
    if (idle.length > 0) await this.#end(idle);
  }

  async #take(deliveries: ReadonlyMap<Pass, readonly ClaimedRetry[]>, revision: bigint): Promise<void> {
    const taken = [...deliveries].map(async ([pass, own]) => {
      pass.open += own.length;
      this.#open += own.length;
      try {
        await this.#parts.sender.take(own, "retry", pass, revision);
      } catch (error) {
        this.#fail(pass, error);
      }
      if (pass.hasLeft) this.#parts.sender.withdraw(pass);
    });
    await Promise.all(taken);
  }

  /** Reads the status of passes that hold nothing. Ends those that were stopped, or have nothing due within their horizon. */
  async #end(passes: readonly Pass[]): Promise<void> {
    const { clock, statuses, leavePaused } = this.#parts;
    const read = () => untilAnswered(() => statuses(passes.map(({ key }) => key)));
    const hasEnded = (pass: Pass, { open, delayMs }: GroupStatus) =>
      pass.hasLeft || open === 0 || clock.now() + delayMs > pass.horizon;
    try {
      const began = clock.now();
      let found = await read();
      this.#nextStatus = clock.now() + pauseAfter(clock.now() - began);
      // Another run retries them once they are resumed: this one may ask for its retries much later.
      const leaving = passes.filter((pass, n) => {
        const status = found[n] as GroupStatus;
        return status.hasPaused && hasEnded(pass, status);
      });
      for (const runId of new Set(leaving.map(({ runId }) => runId)))
        await untilAnswered(() => leavePaused(runId));
      // One may have been resumed just before.
      if (leaving.length > 0) found = await read();
      for (const [n, pass] of passes.entries()) {
        const status = found[n] as GroupStatus;
        pass.claimAt = Math.max(pass.claimAt, clock.now() + status.delayMs);
        if (!hasEnded(pass, status) || !this.#passes.delete(pass)) continue;
        pass.end.resolve(status);
      }
    } catch (error) {
      for (const pass of passes) this.#fail(pass, error);
    }
  }

  /** Ends the claims of a pass. Its queued deliveries are released. */
  #leave(pass: Pass): void {
    pass.hasLeft = true;
    this.#parts.sender.withdraw(pass);
    if ([...this.#passes].every(({ hasLeft }) => hasLeft)) this.#claiming.abort();
    this.#wake();
  }

  #fail(pass: Pass, error: unknown): void {
    this.#passes.delete(pass);
    pass.end.reject(error);
  }

  #returned(pass: Pass): void {
    this.#open -= 1;
    if (this.#open <= this.#wanted || (pass.hasLeft && pass.open === 0)) this.#wake();
  }

  /**
   * Resolves after `ms` milliseconds, when woken, or when at most `wanted` claimed retries are left.
   *
   * @returns whether so few are left
   */
  async #rest(ms: number, wanted: number): Promise<boolean> {
    this.#wanted = wanted;
    await new Promise<void>((resolve) => {
      const cancel = this.#parts.clock.after(ms, resolve);
      this.#wake = () => {
        cancel();
        resolve();
      };
    });
    this.#wanted = -1;
    return this.#open <= wanted;
  }
}

const nameOf = ({ runId, group }: GroupKey) => `${runId} ${group}`;

const pauseAfter = (tookMs: number) => Math.min(STATEMENT_PAUSE.maxMs, STATEMENT_PAUSE.factor * tookMs);

/** The retries of one group that this process holds. Times are in milliseconds, by the monotonic clock. */
class Pass implements Owner {
  readonly key: GroupKey;
  readonly counts = noCounts();
  readonly end = Promise.withResolvers<GroupStatus>();
  lastFailure: string | null = null;
  /** The number of claimed deliveries that have not ended. */
  open = 0;
  /** Whether it claims no more. */
  hasLeft = false;
  pauseMs = 0;
  /** The time of the next claim. */
  claimAt = 0;
  /** The time until which deliveries may become due. */
  horizon = 0;
  /** Whether the last claim, if any, left due deliveries. */
  mayFindMore = true;
  /** The time at which it stops claiming. */
  until = 0;
  readonly #told: () => void;
  #hasEnded = () => {};

  /** @param returned told of each delivery that has ended */
  constructor(key: GroupKey, returned: () => void) {
    this.key = key;
    this.#told = returned;
  }

  get runId(): number {
    return this.key.runId;
  }

  /** Whether another claim could only find deliveries that are due for the second time. */
  isOverAt(now: number): boolean {
    return now > this.horizon && !this.mayFindMore;
  }

  recorded(...[delivery, outcome, state]: Parameters<Owner["recorded"]>): void {
    countIn(this.counts, state);
    if (!outcome.delivered) {
      this.lastFailure = `${failureInWords(outcome)} from ${delivery.webhook.target.host}`;
    }
    this.returned();
  }

  returned(): void {
    this.open -= 1;
    this.#told();
    if (this.open === 0) this.#hasEnded();
  }

  /** Resolves when no delivery is open. */
  async ended(): Promise<void> {
    if (this.open === 0) return;
    await new Promise<void>((resolve) => {
      this.#hasEnded = resolve;
    });
  }
}
