import { chooseGroups } from "../../src/queue/retry-groups.ts";
import type { Rows } from "../../test/support/simulation/queue-table.ts";
import type { Behaviour } from "../../test/support/simulation/receivers.ts";
import { RetryTable, type Waiting } from "../../test/support/simulation/retry-table.ts";

/** The run id of rows of closed runs until another run adopts them. */
const NO_RUN = 0;
/** A run adopts retries due within this time, in milliseconds. */
const ADOPTION_HORIZON_MS = 60_000;

/** The table `retries`, with the groups that the runs of a schedule make of it. */
export class ScheduledRetries extends RetryTable {
  readonly #closed = new Set<number>();

  /** Due unclaimed rows of a behaviour: their number, and the maximum overdue time in milliseconds. */
  overdue(behaviour: Behaviour): { count: number; longestMs: number } {
    const { now } = this.database;
    const found = { count: 0, longestMs: 0 };
    for (const { of, free } of this.waiting()) {
      if (of.host.behaviour !== behaviour) continue;
      for (const rows of free) {
        if (rows.size === 0 || rows.firstTime > now) continue;
        found.count += rows.countBefore(now);
        found.longestMs = Math.max(found.longestMs, now - rows.firstTime);
      }
    }
    return found;
  }

  /** Assigns the rows of closed runs that are due soon to a run. */
  adopt(runId: number): void {
    const until = this.database.now + ADOPTION_HORIZON_MS;
    for (const { of, free } of this.run(NO_RUN).webhooks.values()) {
      free.forEach((rows, attempts) => {
        while (rows.size > 0 && rows.firstTime < until) {
          (this.waitingOf(runId, of).free[attempts] as Rows).restore(rows.firstTime, rows.firstNumber);
          rows.shift();
        }
      });
    }
  }

  /** Assigns a group to each failing webhook, as `assignGroups` does. @returns the groups with open deliveries */
  assignGroups(runId: number): number[] {
    const run = this.run(runId);
    const fresh = [...run.webhooks.values()]
      .filter((waiting) => waiting.group === 0 && openOf(waiting) > 0)
      .map((waiting) => ({ waiting, host: waiting.of.webhook.target.host, deliveries: openOf(waiting) }));
    const taken = new Map(
      [...run.groups].map(([group, [first]]) => [group, (first as Waiting).of.webhook.target.host]),
    );
    for (const [{ waiting }, group] of chooseGroups(fresh, taken, this.#failingRuns)) {
      waiting.group = group;
      run.groups.set(group, [...(run.groups.get(group) ?? []), waiting]);
    }
    return [...run.groups.keys()].filter((group) => this.status(runId, group).open > 0);
  }

  get #failingRuns(): number {
    return [...this.runs.values()].filter(({ groups }) => groups.size > 0).length || 1;
  }

  /** Closes a run without open deliveries. @returns whether it is closed */
  close(runId: number): boolean {
    for (const waiting of this.run(runId).webhooks.values()) if (openOf(waiting) > 0) return false;
    this.runs.delete(runId);
    this.#closed.add(runId);
    return true;
  }

  protected override runOf(runId: number): number {
    return this.#closed.has(runId) ? NO_RUN : runId;
  }
}

function openOf({ claimed, free }: Waiting): number {
  return free.reduce((sum, { size }) => sum + size, claimed);
}
