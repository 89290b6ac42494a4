import type { Claimant, ClaimResult } from "../../../src/db/queue/claims.ts";
import { ATTEMPTS_PER_ROUND, type RetrySpacing } from "../../../src/db/queue/results.ts";
import { type GroupStatus, MAX_GROUPS } from "../../../src/db/queue/retry-groups.ts";
import { Rows, SimulatedDelivery } from "./queue-table.ts";
import type { Behaviour, SimulatedWebhook } from "./receivers.ts";
import type { SimulatedDatabase } from "./simulated-database.ts";

/** Groups with one webhook each if more webhooks fail than there are groups, as in `assignGroups`. */
const OWN_GROUPS = 150;
const SHARED_GROUPS = MAX_GROUPS - OWN_GROUPS;
/** The duration of a worker's lease, after which claimed rows are free, in milliseconds. */
const LEASE_MS = 20_000;

/** The retries of a webhook within a run. */
interface Waiting {
  of: SimulatedWebhook;
  /** By number of attempts. Each list is in order, because its retries have the same delay. */
  free: readonly Rows[];
  claimed: number;
  /** 0 until it has a group. */
  group: number;
}

interface Run {
  webhooks: Map<number, Waiting>;
  groups: Map<number, Waiting[]>;
}

/** The run id of rows of closed runs until another run adopts them. */
const NO_RUN = 0;
/** A run adopts retries due within this time, in milliseconds. */
const ADOPTION_HORIZON_MS = 60_000;

/** The table `retries` and the groups of its runs. */
export class RetryTable {
  readonly #database: SimulatedDatabase;
  readonly #spacing: RetrySpacing;
  readonly #runs = new Map<number, Run>();
  readonly #closed = new Set<number>();

  constructor(database: SimulatedDatabase, spacing: RetrySpacing) {
    this.#database = database;
    this.#spacing = spacing;
  }

  /** The number of unclaimed rows. */
  get unclaimed(): number {
    let sum = 0;
    for (const { free } of this.#waiting()) for (const { size } of free) sum += size;
    return sum;
  }

  /** Due unclaimed rows of a behaviour: their number, and the maximum overdue time in milliseconds. */
  overdue(behaviour: Behaviour): { count: number; longestMs: number } {
    const { now } = this.#database;
    const found = { count: 0, longestMs: 0 };
    for (const { of, free } of this.#waiting()) {
      if (of.host.behaviour !== behaviour) continue;
      for (const rows of free) {
        if (rows.size === 0 || rows.firstTime > now) continue;
        found.count += rows.countBefore(now);
        found.longestMs = Math.max(found.longestMs, now - rows.firstTime);
      }
    }
    return found;
  }

  *#waiting(): Iterable<Waiting> {
    for (const { webhooks } of this.#runs.values()) yield* webhooks.values();
  }

  /** Adds a retry after a failed attempt. @param runId the run that made the attempt */
  add({ of, attempts, number }: SimulatedDelivery, runId: number): void {
    const waiting = this.#waitingOf(this.#closed.has(runId) ? NO_RUN : runId, of);
    const { initialDelayMs, coefficient } = this.#spacing;
    const due = this.#database.now + initialDelayMs * coefficient ** attempts;
    (waiting.free[attempts] as Rows).push(due, number);
  }

  /** Assigns the rows of closed runs that are due soon to a run. */
  adopt(runId: number): void {
    const until = this.#database.now + ADOPTION_HORIZON_MS;
    for (const { of, free } of this.#run(NO_RUN).webhooks.values()) {
      free.forEach((rows, attempts) => {
        while (rows.size > 0 && rows.firstTime < until) {
          (this.#waitingOf(runId, of).free[attempts] as Rows).restore(rows.firstTime, rows.firstNumber);
          rows.shift();
        }
      });
    }
  }

  /** Removes a row whose attempt is recorded. */
  remove({ runId, of }: SimulatedDelivery): void {
    const run = this.#run(runId);
    const waiting = run.webhooks.get(of.number) as Waiting;
    waiting.claimed -= 1;
  }

  /** Releases a claim. */
  release(delivery: SimulatedDelivery): void {
    this.remove(delivery);
    const waiting = this.#run(delivery.runId).webhooks.get(delivery.of.number) as Waiting;
    (waiting.free[delivery.attempts - 1] as Rows).restore(delivery.due, delivery.number);
  }

  claim(
    claimant: Claimant,
    options: { group: number; limit: number; excluded: readonly bigint[] },
  ): Promise<ClaimResult> {
    const { now } = this.#database;
    const { group, limit } = options;
    const inGroup = this.#run(claimant.runId).groups.get(group) ?? [];
    const excluded = inGroup.length > 0 ? new Set(options.excluded) : undefined;
    const members = inGroup.filter(({ of, free }) => isDue(free, now) && !excluded?.has(of.webhook.id));
    const share = Math.max(1, Math.floor(limit / Math.max(1, members.length)));
    const deliveries: SimulatedDelivery[] = [];
    for (const waiting of members) {
      for (let n = Math.min(share, limit - deliveries.length); n > 0 && isDue(waiting.free, now); n -= 1)
        deliveries.push(take(waiting, claimant));
    }
    return this.#database.claimed(inGroup.length, { deliveries, touched: deliveries.length, limited: false });
  }

  /** The status of a group. */
  status(runId: number, group: number): GroupStatus {
    const { now } = this.#database;
    let [open, delayMs] = [0, Number.POSITIVE_INFINITY];
    for (const { claimed, free } of this.#run(runId).groups.get(group) ?? []) {
      open += claimed;
      if (claimed > 0) delayMs = Math.min(delayMs, LEASE_MS);
      for (const rows of free) {
        open += rows.size;
        if (rows.size > 0) delayMs = Math.min(delayMs, rows.firstTime - now);
      }
    }
    return { open, delayMs: open === 0 ? 0 : Math.max(0, Math.ceil(delayMs)), hasPaused: false };
  }

  /** Assigns a group to each failing webhook, as `assignGroups` does. @returns the groups with open deliveries */
  assignGroups(runId: number): number[] {
    const run = this.#run(runId);
    const fresh = [...run.webhooks.values()]
      .filter((waiting) => waiting.group === 0 && openOf(waiting) > 0)
      .sort((one, other) => openOf(other) - openOf(one) || one.of.number - other.of.number);
    const taken = Math.max(0, ...run.groups.keys());
    const all = fresh.reduce((sum, waiting) => sum + openOf(waiting), 0);
    const isLarge = (waiting: Waiting, n: number) => n < OWN_GROUPS && openOf(waiting) * MAX_GROUPS >= all;
    const small = fresh
      .filter((waiting, n) => !isLarge(waiting, n))
      .sort((one, other) => (urlOf(one) < urlOf(other) ? -1 : 1));
    const sharedGroup = new Map(
      small.map((waiting, n) => [waiting, OWN_GROUPS + 1 + Math.floor((n * SHARED_GROUPS) / small.length)]),
    );
    fresh.forEach((waiting, n) => {
      const fits = fresh.length <= MAX_GROUPS - taken;
      waiting.group = fits ? taken + n + 1 : (sharedGroup.get(waiting) ?? ((taken + n) % OWN_GROUPS) + 1);
      const group = run.groups.get(waiting.group);
      if (group) group.push(waiting);
      else run.groups.set(waiting.group, [waiting]);
    });
    return [...run.groups.keys()].filter((group) => this.status(runId, group).open > 0);
  }

  /** Puts all failing webhooks of a run into one group, 1. */
  assignOneGroup(runId: number): void {
    const { webhooks, groups } = this.#run(runId);
    for (const waiting of webhooks.values()) waiting.group = 1;
    groups.set(1, [...webhooks.values()]);
  }

  /** Closes a run without open deliveries. @returns whether it is closed */
  close(runId: number): boolean {
    for (const waiting of this.#run(runId).webhooks.values()) if (openOf(waiting) > 0) return false;
    this.#runs.delete(runId);
    this.#closed.add(runId);
    return true;
  }

  #waitingOf(runId: number, of: SimulatedWebhook): Waiting {
    const { webhooks } = this.#run(runId);
    let waiting = webhooks.get(of.number);
    if (!waiting) {
      const free = Array.from({ length: ATTEMPTS_PER_ROUND - 1 }, () => new Rows());
      waiting = { of, group: 0, claimed: 0, free };
      webhooks.set(of.number, waiting);
    }
    return waiting;
  }

  #run(runId: number): Run {
    let run = this.#runs.get(runId);
    if (!run) {
      run = { webhooks: new Map(), groups: new Map() };
      this.#runs.set(runId, run);
    }
    return run;
  }
}

function openOf({ claimed, free }: Waiting): number {
  return free.reduce((sum, { size }) => sum + size, claimed);
}

function isDue(free: readonly Rows[], now: number): boolean {
  return free.some((rows) => rows.size > 0 && rows.firstTime <= now);
}

/** Claims the row with the earliest due time. */
function take(waiting: Waiting, claimant: Claimant): SimulatedDelivery {
  let attempts = -1;
  let due = Number.POSITIVE_INFINITY;
  waiting.free.forEach((rows, n) => {
    if (rows.size === 0 || rows.firstTime >= due) return;
    due = rows.firstTime;
    attempts = n;
  });
  const rows = waiting.free[attempts] as Rows;
  const { firstNumber } = rows;
  rows.shift();
  waiting.claimed += 1;
  return new SimulatedDelivery(waiting.of, claimant, attempts + 1, firstNumber, Number.NaN, due);
}

function urlOf({ of }: Waiting): string {
  const { origin, path } = of.webhook.target;
  return origin + path;
}
