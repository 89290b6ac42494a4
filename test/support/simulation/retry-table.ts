import type { Claimant, RetryClaim } from "../../../src/queue/claims.ts";
import { ATTEMPTS_PER_ROUND, type RetrySpacing } from "../../../src/queue/results.ts";
import type { GroupKey, GroupStatus } from "../../../src/queue/retry-groups.ts";
import { Rows, SimulatedDelivery } from "./queue-table.ts";
import type { SimulatedWebhook } from "./receivers.ts";
import type { SimulatedDatabase } from "./simulated-database.ts";

/** The duration of a worker's lease, after which claimed rows are free, in milliseconds. */
const LEASE_MS = 20_000;

/** The retries of a webhook within a run. */
export interface Waiting {
  of: SimulatedWebhook;
  /** By number of attempts. Each list is in order, because its retries have the same delay. */
  free: readonly Rows[];
  claimed: number;
  /** 0 until it has a group. */
  group: number;
}

export interface Run {
  webhooks: Map<number, Waiting>;
  groups: Map<number, Waiting[]>;
}

/** The table `retries` and the groups of its runs. */
export class RetryTable {
  protected readonly database: SimulatedDatabase;
  readonly #spacing: RetrySpacing;
  protected readonly runs = new Map<number, Run>();

  constructor(database: SimulatedDatabase, spacing: RetrySpacing) {
    this.database = database;
    this.#spacing = spacing;
  }

  /** The number of unclaimed rows. */
  get unclaimed(): number {
    let sum = 0;
    for (const { free } of this.waiting()) for (const { size } of free) sum += size;
    return sum;
  }

  protected *waiting(): Iterable<Waiting> {
    for (const { webhooks } of this.runs.values()) yield* webhooks.values();
  }

  /** Adds a retry after a failed attempt. @param runId the run that made the attempt */
  add({ of, attempts, number }: SimulatedDelivery, runId: number): void {
    const waiting = this.waitingOf(this.runOf(runId), of);
    const { retryInitialDelayMs, retryBackoffCoefficient } = this.#spacing;
    const due = this.database.now + retryInitialDelayMs * retryBackoffCoefficient ** attempts;
    (waiting.free[attempts] as Rows).push(due, number);
  }

  /** Removes a row whose attempt is recorded. */
  remove({ runId, of }: SimulatedDelivery): void {
    (this.run(runId).webhooks.get(of.number) as Waiting).claimed -= 1;
  }

  /** Releases a claim. */
  release(delivery: SimulatedDelivery): void {
    this.remove(delivery);
    const waiting = this.run(delivery.runId).webhooks.get(delivery.of.number) as Waiting;
    (waiting.free[delivery.attempts - 1] as Rows).restore(delivery.due, delivery.number);
  }

  claim(
    workerId: number,
    { groups, limit, excluded }: { groups: readonly GroupKey[]; limit: number; excluded: readonly bigint[] },
  ): Promise<RetryClaim> {
    const { now } = this.database;
    const inGroups = groups.flatMap(({ runId, group }) =>
      (this.run(runId).groups.get(group) ?? []).map((waiting) => ({ runId, waiting })),
    );
    const skipped = inGroups.length > 0 ? new Set(excluded) : undefined;
    const members = inGroups.filter(
      ({ waiting: { of, free } }) => isDue(free, now) && !skipped?.has(of.webhook.id),
    );
    const share = Math.max(1, Math.floor(limit / Math.max(1, members.length)));
    const deliveries: SimulatedDelivery[] = [];
    for (const { runId, waiting } of members) {
      for (let n = Math.min(share, limit - deliveries.length); n > 0 && isDue(waiting.free, now); n -= 1)
        deliveries.push(take(waiting, { workerId, runId }));
    }
    const claim = { deliveries, touched: deliveries.length, limited: [] };
    return this.database.claimed(inGroups.length, claim);
  }

  /** The status of a group. */
  status(runId: number, group: number): GroupStatus {
    const { now } = this.database;
    let [open, delayMs] = [0, Number.POSITIVE_INFINITY];
    for (const { claimed, free } of this.run(runId).groups.get(group) ?? []) {
      open += claimed;
      if (claimed > 0) delayMs = Math.min(delayMs, LEASE_MS);
      for (const rows of free) {
        open += rows.size;
        if (rows.size > 0) delayMs = Math.min(delayMs, rows.firstTime - now);
      }
    }
    return { open, delayMs: open === 0 ? 0 : Math.max(0, Math.ceil(delayMs)) };
  }

  /** Puts all failing webhooks of a run into one group, 1. */
  assignOneGroup(runId: number): void {
    const { webhooks, groups } = this.run(runId);
    for (const waiting of webhooks.values()) waiting.group = 1;
    groups.set(1, [...webhooks.values()]);
  }

  /** The run that makes the retries of another run's attempts. */
  protected runOf(runId: number): number {
    return runId;
  }

  protected waitingOf(runId: number, of: SimulatedWebhook): Waiting {
    const { webhooks } = this.run(runId);
    let waiting = webhooks.get(of.number);
    if (!waiting) {
      const free = Array.from({ length: ATTEMPTS_PER_ROUND - 1 }, () => new Rows());
      waiting = { of, group: 0, claimed: 0, free };
      webhooks.set(of.number, waiting);
    }
    return waiting;
  }

  protected run(runId: number): Run {
    let run = this.runs.get(runId);
    if (!run) {
      run = { webhooks: new Map(), groups: new Map() };
      this.runs.set(runId, run);
    }
    return run;
  }
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
  const delivery = new SimulatedDelivery(waiting.of, claimant, attempts + 1, firstNumber, due);
  delivery.group = waiting.group;
  return delivery;
}
