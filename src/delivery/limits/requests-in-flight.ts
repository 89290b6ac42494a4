import type { Kind, Task } from "./task.ts";

/** Whether requests to a host usually wait long enough to become exempt. Hosts of each pace have a budget of their own. */
export type Pace = "usual" | "slow";

/** Requests that use at most a share of the limits: retries while first attempts are queued, and probes. */
export type Shared = "retry" | "probe";

/** The shares of the budget and of the maximum. */
const SHARES: Record<Shared, number> = { retry: 1 / 5, probe: 1 / 4 };
/** The smallest budget of which each share is at least one request. */
export const MIN_SHARED_BUDGET = 5;
/** The part of the maximum for requests that are exempt, or to slow hosts. */
const SLOW_PART_OF_MAX = 3 / 4;

/** Numbers of requests. */
type Counts = Record<Kind | "probe", number>;

const none = (): Counts => ({ first: 0, retry: 0, probe: 0 });

/** How a request in flight is counted. */
interface Request {
  readonly isProbe: boolean;
  readonly pace: Pace;
}

/**
 * Counts the requests in flight against the limits of a process. The budget holds requests that keep the process busy: one that
 * has waited long for its response does not. It is exempt from then on (`exemptSlow`), so that slow receivers do not take the slots of
 * fast ones. All count toward the maximum.
 *
 * Requests to slow hosts have a budget of their own, of the same size, and a part of the maximum. Otherwise, whenever fast
 * hosts have nothing queued for a moment, slow ones would take their slots, and keep them until they respond.
 */
export class RequestsInFlight<T extends Task> {
  /** The maximum number of requests per pace that are not exempt. May be changed at any time. */
  budget: number;
  readonly #max: number;
  readonly #requests = new Map<T, Request>();
  readonly #all = none();
  /** Those that are exempt, or to slow hosts. */
  #slow = 0;
  /** Those that are not exempt. */
  readonly #counted: Record<Pace, Counts> = { usual: none(), slow: none() };
  /** Those that the next call of `exemptSlow` exempts, and those that the one after it does. */
  #older = new Set<T>();
  #recent = new Set<T>();

  constructor(limits: { budget: number; max: number }) {
    this.budget = limits.budget;
    this.#max = limits.max;
  }

  get size(): number {
    return this.#requests.size;
  }

  /** Whether the limits have room for another request to a host of a pace. */
  hasRoom(pace: Pace): boolean {
    if (this.size >= this.#max || this.#isUsed(pace)) return false;
    return pace === "usual" || this.#slow < share(this.#max, SLOW_PART_OF_MAX);
  }

  /** Whether the budget of a pace is used. */
  get isBudgetUsed(): boolean {
    return this.#isUsed("usual") || this.#isUsed("slow");
  }

  #isUsed(pace: Pace): boolean {
    const { first, retry } = this.#counted[pace];
    return first + retry >= this.budget;
  }

  /** Whether requests of a sort use less than their share of the pace's budget and of the maximum. */
  isBelowShare(sort: Shared, pace: Pace): boolean {
    const part = SHARES[sort];
    return this.#counted[pace][sort] < share(this.budget, part) && this.#all[sort] < share(this.#max, part);
  }

  start(task: T, request: Request): void {
    this.#requests.set(task, request);
    change(this.#all, task, request, 1);
    change(this.#counted[request.pace], task, request, 1);
    // The next call exempts a request to a slow host, which is expected to wait. Others are in flight for a whole interval first.
    (request.pace === "slow" ? this.#older : this.#recent).add(task);
    if (request.pace === "slow") this.#slow += 1;
  }

  /** Returns whether the request was exempt. */
  end(task: T): boolean {
    const request = this.#requests.get(task) as Request;
    this.#requests.delete(task);
    change(this.#all, task, request, -1);
    const isCounted = this.#recent.delete(task) || this.#older.delete(task);
    if (isCounted) change(this.#counted[request.pace], task, request, -1);
    if (!isCounted || request.pace === "slow") this.#slow -= 1;
    return !isCounted;
  }

  /**
   * Exempts requests that have been in flight since before the previous call, and all to slow hosts, from the budget.
   * Returns them.
   */
  exemptSlow(): ReadonlySet<T> {
    const exempt = this.#older;
    for (const task of exempt) {
      const request = this.#requests.get(task) as Request;
      change(this.#counted[request.pace], task, request, -1);
      if (request.pace === "usual") this.#slow += 1;
    }
    this.#older = this.#recent;
    this.#recent = new Set();
    return exempt;
  }
}

/** A part of a limit: at least one request. */
function share(limit: number, part: number): number {
  return Math.max(1, Math.floor(limit * part));
}

function change(counts: Counts, { kind }: Task, { isProbe }: Request, by: 1 | -1): void {
  counts[kind] += by;
  if (isProbe) counts.probe += by;
}
