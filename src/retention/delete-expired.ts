import { Context } from "@temporalio/activity";
import type { DispatchConfig } from "../config/index.ts";
import { type Db, untilAnswered } from "../lib/pg/index.ts";
import { countFailed, type DeliveryInstruments } from "../metrics/index.ts";
import { ensurePartitions } from "../schema/index.ts";
import { retentionStep } from "./retention.ts";

/** What modules delete of their own tables. */
export interface Deletions {
  /** Done once, before all others. */
  once: readonly ((db: Db) => Promise<unknown>)[];
  /** Repeated until nothing is left, by what they delete in words. They return its number. */
  steps: Readonly<Record<string, (db: Db) => Promise<number>>>;
}

/**
 * Creates the retention activity. It creates the partitions of the coming week, and applies the retention step by step
 * until nothing is left. A retry continues where the previous attempt stopped.
 *
 * @param heartbeats performs work with the heartbeats of its activity, whose end aborts the signal
 */
export function createDeleteExpired(
  { db, directDb, instruments }: { db: Db; directDb: Db; instruments: DeliveryInstruments },
  { retentionDays, payloadRetentionDays }: DispatchConfig,
  { once, steps }: Deletions,
  heartbeats: (work: (stop: AbortSignal) => Promise<{ summary: string }>) => Promise<{ summary: string }>,
) {
  return (): Promise<{ summary: string }> =>
    heartbeats(async (stop) => {
      const { cancellationSignal: signal } = Context.current();
      const answer = <T>(ask: () => Promise<T>) => untilAnswered(ask, { signal });
      await answer(() => ensurePartitions(db, retentionDays));
      for (const forget of once) await answer(() => forget(db));
      const total: Record<string, number> = {};
      let changes: number;
      do {
        const step = await answer(() =>
          retentionStep(db, directDb, retentionDays, payloadRetentionDays, stop),
        );
        countFailed(instruments.failed, step.expired, "expired");
        const done: Record<string, number> = { ...step, partitions: step.partitions.length };
        for (const [what, remove] of Object.entries(steps)) done[what] = await answer(() => remove(db));
        for (const [what, number] of Object.entries(done)) total[what] = (total[what] ?? 0) + number;
        changes = Object.values(done).reduce((sum, each) => sum + each);
      } while (changes > 0 && !stop.aborted);
      const { expired, payloads, keys, runs, partitions } = total;
      const others = Object.keys(steps).map((what) => `, ${total[what]} ${what}`);
      return {
        summary: `${expired} open deliveries expired; ${payloads} payloads erased; ${partitions} partitions, ${keys} idempotency keys, ${runs} runs${others.join("")} deleted`,
      };
    });
}
