import type { AttemptCounts } from "../../workflows/activities.ts";
import { untilAnswered } from "../lib/pg/index.ts";
import type { Clock } from "../lib/process/index.ts";
import type { claimDue, GroupKey, GroupStatus, RetryClaim } from "../queue/index.ts";
import { ClaimOwner } from "./claim-owner.ts";
import type { WorkerLease } from "./claims/worker-lease.ts";
import type { Sender } from "./sender.ts";

/** The maximum number of retries claimed by one statement. */
const MAX_CLAIMED_PER_STATEMENT = 256;
/** The number of queued sendable retries above which nothing is claimed. Retries that wait for their receivers do not count. */
const MAX_QUEUED = 128;
/** If a claim finds at least this many retries, the next claim follows as soon as half of the claimed retries have ended. */
const MIN_BUSY = 32;
/** The interval of checks, without the database, whether half has ended or the sender has room for a claim again, in milliseconds. */
const CHECK_MS = 10;
/**
 * The limits of the pause between claims, in milliseconds. The pause is a tenth of the horizon. Retries that fall due during the pause are
 * claimed together.
 */
const PAUSE_MS = { min: 100, max: 1_000 };
/** The maximum pause while a group waits for a rate limit, in milliseconds. Short, because retries get only one second in five. */
const RATE_LIMIT_PAUSE_MS = 250;
/**
 * The pause after a claim that found fewer than MIN_BUSY retries, and between queries of the status: a multiple of the statement's
 * duration, up to a maximum in milliseconds. A claim visits all webhooks of the groups, and a query counts all of their retries.
 */
const STATEMENT_PAUSE = { factor: 10, maxMs: 5_000 };

/** The result of one pass over a retry group. */
export interface PassResult extends AttemptCounts {
  /** The status of the group after the pass. */
  status: GroupStatus;
  /** The last failure, as text for users: `503 from shop.example`. */
  lastFailure: string | null;
  /** False if `stop` ended the pass. True also if `forMs` ended it. */
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
 * Sends the due retries of groups through the process's sender. One loop claims for all passes by one statement. By another, it reads the
 * status of all groups whose passes have nothing left to send. A pass that waits sends no statements.
 */
export class RetryPasses {
  readonly #parts: RetryPassesParts;
  readonly #passes = new Set<Pass>();
  #isRunning = false;
  /** Cancels the claim in progress when no pass needs it. */
  #claiming = new AbortController();
  /** Ends the loop's pause. */
  #alarm = new AbortController();
  /** The earliest times of the next claim and query of the status. */
  #nextClaim = Number.NEGATIVE_INFINITY;
  #nextStatus = Number.NEGATIVE_INFINITY;
  /** When at most this number of claimed retries are open, the next claim follows without a pause; 0: always after the pause. */
  #claimAtOpen = 0;

  constructor(parts: RetryPassesParts) {
    this.#parts = parts;
  }

  /**
   * Sends each delivery of the group that is due within the horizon once.
   *
   * @param options.horizonMs the time until which the pass waits for deliveries to become due, in milliseconds. A delivery that
   *   fails and is due again within it is sent again
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
      // Ends the pause early: a webhook without queued retries would use its window for first attempts, while retries are due.
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

  /** Claims retries for the given passes, and hands them to the sender. */
  async #claim(passes: readonly Pass[], signal: AbortSignal): Promise<void> {
    const { sender, lease, claim, clock } = this.#parts;
    const free = sender.claimRoom("retry", MAX_CLAIMED_PER_STATEMENT, MAX_QUEUED);
    if (!free) return this.#rest(CHECK_MS);
    const { asOf, ...room } = free;
    // If Temporal has restarted the activity of a group while its earlier pass still runs here, the later pass gets the retries.
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
      // Passes that begin during the pause also wait for its end.
      this.#nextClaim = now + Math.max(costMs, Math.min(...pauses));
    }
    await sender.take(deliveries, "retry", (each) => byGroup.get(nameOf(each as GroupKey)) as Pass, asOf);
    // Passes that were stopped during the claim release what it got for them.
    for (const pass of passes) if (pass.hasLeft) this.#stop(pass);
    // After a busy claim, one that finds nothing, because webhooks with enough queued retries are skipped, leaves the passes busy.
    const isBusy = touched >= MIN_BUSY || (touched === 0 && this.#claimAtOpen > 0);
    this.#claimAtOpen = isBusy ? this.#open >> 1 : 0;
    if (isFull || now < this.#nextStatus) return;
    // A group that waits for a rate limit still has due retries.
    const idle = passes.filter(
      ({ key, open, hasLeft }) => open === 0 && !hasLeft && !limited.has(nameOf(key)),
    );
    if (idle.length > 0) await this.#end(idle);
  }

  /**
   * Reads the status of the groups of passes without open deliveries. Ends the passes that claim no more, and those whose group has
   * nothing due within the horizon. `settle` also removes the retries of paused webhooks from the run: another run adopts them when the
   * webhook is resumed, because this run may claim again only much later.
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

  /** Stops claiming for a pass, and releases its queued deliveries. */
  #stop(pass: Pass): void {
    this.#leave(pass);
    this.#parts.sender.withdraw(pass);
  }

  /** Stops claiming for a pass. Wakes the loop when the claimed deliveries of the pass have ended. */
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

/** A retry pass: the claimed retries of one group. Times are in milliseconds, by the monotonic clock. */
class Pass extends ClaimOwner {
  readonly key: GroupKey;
  readonly end = Promise.withResolvers<GroupStatus>();
  /** The time until which the pass waits for deliveries to become due. */
  readonly horizon: number;
  readonly pauseMs: number;
  /** The last failure, as text for users: `503 from shop.example`. */
  lastFailure: string | null = null;
  /** Whether the pass claims no more. */
  hasLeft = false;
  /** The time from which the pass takes part in claims. */
  claimAt: number;
  /** Whether due deliveries may be left: there was no claim yet, or the last one reached its limit. */
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

  /** Whether the horizon has passed and nothing due is left: another claim could only find deliveries that are due again. */
  isOverAt(now: number): boolean {
    return !this.hasLeft && now > this.horizon && !this.mayFindMore;
  }
}
