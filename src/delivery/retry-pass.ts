import pLimit, { type LimitFunction } from "p-limit";
import type { AttemptCounts } from "../../workflows/activities.ts";
import { untilAnswered } from "../db/faults.ts";
import type { Claimant, claimGroup } from "../db/queue/claims.ts";
import type { GroupStatus } from "../db/queue/retry-groups.ts";
import type { Clock } from "../process/clock.ts";
import type { GatheredStatements } from "./gathered-statements.ts";
import { countIn, noCounts } from "./recorder.ts";
import { targetOf } from "./request/target.ts";
import type { Owner, Sender } from "./sender.ts";
import type { WorkerLease } from "./worker-lease.ts";

/** Retries that one statement claims, at most. */
const CLAIM = 128;
/** While more than this wait or are in flight, none are claimed for the group. */
const ENOUGH_OPEN = 64;
/** Claims under way at once: hundreds of groups must not hold all connections to the database. */
const CLAIMS_AT_ONCE = 4;
/** How long it rests when there is nothing to claim that could be sent, in milliseconds. */
const REST_MS = 2_000;
/** The same while nothing of the group waits here or is in flight: what falls due meanwhile is claimed together. */
const SHORT_REST_MS = { min: 100, max: 1_000 };
/** The same when a rate limit is reached. */
const LIMITED_MS = 250;

/** What one pass over a retry group did. */
export interface PassResult extends AttemptCounts {
  /** Where the group stands after it. */
  status: GroupStatus;
  /** The last failure, for people: `503 from shop.example`. */
  lastFailure: string | null;
  /** False when the pass was stopped. */
  complete: boolean;
}

/** How long a pass works; times in milliseconds. */
export interface PassOptions {
  /** It sends what becomes due within this time too. No delivery is due again within it. */
  horizonMs: number;
  /** It claims nothing more after this time. */
  forMs: number;
}

/** What passes work with. */
export interface RetryPassesParts {
  clock: Clock;
  /** Claims retries of a group in the database. */
  claim: (claimant: Claimant, options: Parameters<typeof claimGroup>[2]) => ReturnType<typeof claimGroup>;
  lease: Pick<WorkerLease, "claim">;
  sender: Sender;
  statements: Pick<GatheredStatements, "groupStatus">;
}

/** Sends the retries of groups that are due, through the process's one sender. */
export class RetryPasses {
  readonly #parts: RetryPassesParts;
  readonly #limitClaims: LimitFunction = pLimit(CLAIMS_AT_ONCE);

  constructor(parts: RetryPassesParts) {
    this.#parts = parts;
  }

  /**
   * Sends each delivery of the group that is due, or falls due within the horizon, once. Waiting holds nothing but memory.
   *
   * @param stop ends it early: what is in flight is recorded, the rest is given back
   * @param report is given the counts, which go on changing
   */
  async run(
    { runId, group }: { runId: number; group: number },
    { horizonMs, forMs }: PassOptions,
    stop: AbortSignal,
    report: (counts: Readonly<AttemptCounts>) => void = () => {},
  ): Promise<PassResult> {
    const { clock, sender, statements } = this.#parts;
    const pass = new Pass(clock);
    report(pass.counts);
    const started = clock.now();
    const shortRestMs = Math.min(SHORT_REST_MS.max, Math.max(SHORT_REST_MS.min, horizonMs / 10));
    const status = () => untilAnswered(() => statements.groupStatus(runId, group));
    const onStop = () => sender.withdraw(pass);
    stop.addEventListener("abort", onStop);
    try {
      while (!stop.aborted && clock.now() < started + forMs) {
        if (pass.open > ENOUGH_OPEN || sender.room === 0) {
          await pass.fallenTo(ENOUGH_OPEN, shortRestMs);
          continue;
        }
        const { found, limited } = await this.#claim(pass, { runId, group }, stop);
        if (found) continue;
        if (pass.open > 0) {
          await pass.fallenTo(Math.floor(pass.open / 2), REST_MS);
        } else {
          const { open, delayMs } = await status();
          if (open === 0 || clock.now() + delayMs > started + horizonMs) break;
          const restMs = Math.max(delayMs, limited ? LIMITED_MS : shortRestMs);
          await clock.wait(restMs, { signal: stop });
        }
      }
    } finally {
      stop.removeEventListener("abort", onStop);
      sender.withdraw(pass);
      await pass.ended();
    }
    return { ...pass.counts, status: await status(), lastFailure: pass.lastFailure, complete: !stop.aborted };
  }

  async #claim(
    pass: Pass,
    { runId, group }: { runId: number; group: number },
    stop: AbortSignal,
  ): Promise<{ found: boolean; limited: boolean }> {
    const { sender, lease, claim } = this.#parts;
    const { revision } = sender;
    const excluded = sender.supplied("retry");
    const limit = Math.min(CLAIM, sender.room);
    try {
      const claimed = await this.#limitClaims(() =>
        lease.claim((workerId) => claim({ workerId, runId }, { group, limit, excluded }), stop),
      );
      pass.take(claimed.deliveries.length);
      await sender.take(claimed.deliveries, "retry", pass, revision);
      return { found: claimed.touched > 0, limited: claimed.limited };
    } catch (error) {
      // A claim that was waiting for the database when it was time to stop has nothing to tell.
      if (!stop.aborted) throw error;
      return { found: false, limited: false };
    }
  }
}

/** The retries of one group that this process holds. */
class Pass implements Owner {
  readonly counts = noCounts();
  lastFailure: string | null = null;
  /** Claimed and not ended. */
  open = 0;
  readonly #clock: Clock;
  #wanted = 0;
  #tell: () => void = () => {};

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  take(deliveries: number): void {
    this.open += deliveries;
  }

  recorded(...[delivery, outcome, state]: Parameters<Owner["recorded"]>): void {
    countIn(this.counts, state);
    if (!outcome.delivered) {
      const { host } = targetOf(delivery.webhook);
      this.lastFailure = `${outcome.error ?? outcome.status} from ${host}`;
    }
    this.returned();
  }

  returned(): void {
    this.open -= 1;
    if (this.open <= this.#wanted) this.#tell();
  }

  /** Resolves when so many or fewer are open, or after a while. */
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
