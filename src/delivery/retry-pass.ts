import type { AttemptCounts } from "../../workflows/activities.ts";
import { untilAnswered } from "../lib/pg/index.ts";
import type { Clock } from "../lib/process/index.ts";
import type { claimDue, GroupKey, GroupStatus, RetryClaim } from "../queue/index.ts";
import { ClaimOwner } from "./claim-owner.ts";
import type { WorkerLease } from "./claims/worker-lease.ts";
import type { Sender } from "./sender.ts";

/** The maximum number of retries claimed by one statement. */
const MAX_CLAIMED_PER_STATEMENT = 256;
/** The number of queued sendable retries above which nothing is claimed. Those that wait for their receivers do not count. */
const MAX_QUEUED = 128;
/** The number of retries found by one claim from which the next follows as soon as half of what the passes hold has ended. */
const MIN_BUSY = 32;
/** The interval at which memory shows whether half has ended, or whether MAX_QUEUED is still exceeded, in milliseconds. */
const CHECK_MS = 10;
/**
 * The pause between claims, in milliseconds: a tenth of the horizon within these limits. Retries that fall due meanwhile are claimed
 * together.
 */
const PAUSE_MS = { min: 100, max: 1_000 };
/** The pause while a group waits for a rate limit, in milliseconds: first attempts leave retries one second in five. */
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

/** Dependencies of retry passes. */
export interface RetryPassesParts {
  clock: Clock;
  /** Claims due retries of groups in the database. */
  claim: (workerId: number, options: Parameters<typeof claimDue>[2]) => Promise<RetryClaim>;
  lease: Pick<WorkerLease, "claim">;
  sender: Pick<Sender, "take" | "withdraw" | "claimRoom">;
  /** Removes the retries of paused and deleted webhooks from the runs of groups, and reads the status of the groups, in order. */
  settle: (groups: readonly GroupKey[]) => Promise<GroupStatus[]>;
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
  /** Ends the loop's pause. */
  #alarm = new AbortController();
  /** The earliest times of the next claim and query of the status. */
  #nextClaim = Number.NEGATIVE_INFINITY;
  #nextStatus = Number.NEGATIVE_INFINITY;
  /** The number of claimed retries of all passes at which the next claim follows at once; 0 for none. */
  #claimAtOpen = 0;

  constructor(parts: RetryPassesParts) {
    this.#parts = parts;
  }

  /**
   * Sends each delivery of the group that is due within the horizon once.
   *
   * @param options.horizonMs the horizon, in milliseconds. Must be shorter than the retry delay
   * @param options.forMs the time after which the pass stops claiming, in milliseconds
   * @param stop ends the pass early: requests in flight are completed and recorded, queued deliveries are released
   * @param counts updated in place
   */
  async run(
    key: GroupKey,
    { horizonMs, forMs }: { horizonMs: number; forMs: number },
    stop: AbortSignal,
    counts?: AttemptCounts,
  ): Promise<PassResult> {
    const { sender, clock } = this.#parts;
    const pass = new Pass(key, clock.now(), horizonMs, counts);
    const onStop = () => this.#stop(pass);
    const cancel = clock.after(forMs, onStop);
    stop.addEventListener("abort", onStop);
    this.#passes.add(pass);
    if (stop.aborted) onStop();
    this.#alarm.abort();
    if (!this.#isRunning) void this.#loop();
    try {
      const status = await pass.end.promise;
      return { ...pass.counts, status, lastFailure: pass.lastFailure, complete: !stop.aborted };
    } finally {
      cancel();
      stop.removeEventListener("abort", onStop);
      sender.withdraw(pass);
      await pass.ended();
    }
  }

  /** Never rejects. */
  async #loop(): Promise<void> {
    const { clock } = this.#parts;
    this.#isRunning = true;
    while (this.#passes.size > 0) {
      const now = clock.now();
      for (const pass of this.#passes) if (pass.isOverAt(now)) this.#leave(pass);
      const left = [...this.#passes].filter(({ hasLeft, open }) => hasLeft && open === 0);
      const claiming = [...this.#passes].filter(({ hasLeft }) => !hasLeft);
      // If a webhook had none queued until the end of a pause, its first attempts would take the turns of due retries.
      const isHalf = this.#claimAtOpen > 0 && this.#open <= this.#claimAtOpen;
      const paused = isHalf ? now : this.#nextClaim;
      const next = Math.max(paused, Math.min(...claiming.map(({ claimAt }) => claimAt)));
      if (left.length > 0) {
        await this.#end(left).catch((error) => this.#fail(left, error));
      } else if (now < next) {
        await this.#rest(Math.min(next - now, this.#claimAtOpen > 0 ? CHECK_MS : PAUSE_MS.max));
      } else {
        const due = claiming.filter(({ claimAt }) => claimAt <= now);
        this.#claiming = new AbortController();
        const { signal } = this.#claiming;
        await this.#claim(due, signal).catch((error) => {
          // An interrupted claim claimed nothing.
          if (!signal.aborted) this.#fail(due, error);
        });
      }
    }
    this.#isRunning = false;
  }

  /** The number of claimed retries that have not ended. */
  get #open(): number {
    return [...this.#passes].reduce((sum, { open }) => sum + open, 0);
  }

  /** Claims for some passes, and passes what they get to the sender. */
  async #claim(passes: readonly Pass[], signal: AbortSignal): Promise<void> {
    const { sender, lease, claim, clock } = this.#parts;
    const free = sender.claimRoom("retry", MAX_CLAIMED_PER_STATEMENT, MAX_QUEUED);
    if (!free) return this.#rest(CHECK_MS);
    const { revision, ...room } = free;
    // One pass of a group, if Temporal has started it anew while this process still works on it.
    const byGroup = new Map(passes.map((pass) => [nameOf(pass.key), pass]));
    const groups = [...byGroup.values()].map(({ key }) => key);
    const began = clock.now();
    const { touched, deliveries, ...found } = await lease.claim(
      (workerId) => claim(workerId, { groups, ...room }),
      signal,
    );
    const isFull = touched === room.limit;
    const limited = new Set(found.limited.map(nameOf));
    const now = clock.now();
    for (const pass of passes) pass.mayFindMore = isFull;
    if (!isFull) {
      const pauses = passes.map(({ pauseMs }) => pauseMs);
      if (limited.size > 0) pauses.push(RATE_LIMIT_PAUSE_MS);
      const costMs = touched >= MIN_BUSY ? 0 : pauseAfter(now - began);
      // Passes that begin later join the next claim.
      this.#nextClaim = now + Math.max(costMs, Math.min(...pauses));
    }
    await sender.take(deliveries, "retry", (each) => byGroup.get(nameOf(each as GroupKey)) as Pass, revision);
    // Some were stopped during the claim.
    for (const pass of passes) if (pass.hasLeft) this.#stop(pass);
    // A claim that finds nothing, because receivers have enough queued, changes nothing.
    const isBusy = touched >= MIN_BUSY || (touched === 0 && this.#claimAtOpen > 0);
    this.#claimAtOpen = isBusy ? this.#open >> 1 : 0;
    if (isFull || now < this.#nextStatus) return;
    // With a rate limit, some are due.
    const idle = passes.filter(
      ({ key, open, hasLeft }) => open === 0 && !hasLeft && !limited.has(nameOf(key)),
    );
    if (idle.length > 0) await this.#end(idle);
  }

  /**
   * Reads the status of passes that hold nothing. Ends those that were stopped, or have nothing due within their horizon. Retries of
   * paused webhooks leave their run: another one retries them once they are resumed. This one may ask for its retries much later.
   */
  async #end(passes: readonly Pass[]): Promise<void> {
    const { clock, settle } = this.#parts;
    const began = clock.now();
    const statuses = await untilAnswered(() => settle(passes.map(({ key }) => key)));
    const now = clock.now();
    this.#nextStatus = now + pauseAfter(now - began);
    for (const [n, pass] of passes.entries()) {
      const status = statuses[n] as GroupStatus;
      pass.claimAt = now + status.delayMs;
      if (!pass.hasLeft && status.open > 0 && pass.claimAt <= pass.horizon) continue;
      this.#passes.delete(pass);
      pass.end.resolve(status);
    }
  }

  /** Ends the claims of a pass, and releases its queued deliveries. */
  #stop(pass: Pass): void {
    this.#leave(pass);
    this.#parts.sender.withdraw(pass);
  }

  /** Ends the claims of a pass. Wakes the loop when its claimed deliveries have ended. */
  #leave(pass: Pass): void {
    pass.hasLeft = true;
    void pass.ended().then(() => this.#alarm.abort());
    if ([...this.#passes].every(({ hasLeft }) => hasLeft)) this.#claiming.abort();
  }

  #fail(passes: readonly Pass[], error: unknown): void {
    for (const pass of passes) {
      this.#passes.delete(pass);
      pass.end.reject(error);
    }
  }

  #rest(ms: number): Promise<void> {
    this.#alarm = new AbortController();
    return this.#parts.clock.wait(ms, { signal: this.#alarm.signal });
  }
}

const nameOf = ({ runId, group }: GroupKey) => `${runId} ${group}`;

const pauseAfter = (tookMs: number) => Math.min(STATEMENT_PAUSE.maxMs, STATEMENT_PAUSE.factor * tookMs);

/** The retries of one group that this process holds. Times are in milliseconds, by the monotonic clock. */
class Pass extends ClaimOwner {
  readonly key: GroupKey;
  readonly end = Promise.withResolvers<GroupStatus>();
  /** The time until which deliveries may become due. */
  readonly horizon: number;
  readonly pauseMs: number;
  /** The last failure, as text for users: `503 from shop.example`. */
  lastFailure: string | null = null;
  /** Whether it claims no more. */
  hasLeft = false;
  /** The time from which it takes part in claims. */
  claimAt: number;
  /** Whether the last claim, if any, left due deliveries. */
  mayFindMore = true;

  constructor(key: GroupKey, now: number, horizonMs: number, counts?: AttemptCounts) {
    super(key.runId, counts);
    this.key = key;
    this.claimAt = now;
    this.horizon = now + horizonMs;
    this.pauseMs = Math.min(PAUSE_MS.max, Math.max(PAUSE_MS.min, horizonMs / 10));
  }

  override recorded(...ended: Parameters<ClaimOwner["recorded"]>): void {
    const [{ webhook }, { delivered, status, error }] = ended;
    if (!delivered) {
      const failure = [status, error].filter((each) => each !== null).join(", ");
      this.lastFailure = `${failure} from ${webhook.target.host}`;
    }
    super.recorded(...ended);
  }

  /** Whether another claim could only find deliveries that are due for the second time. */
  isOverAt(now: number): boolean {
    return !this.hasLeft && now > this.horizon && !this.mayFindMore;
  }
}
