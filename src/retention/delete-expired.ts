import { Context } from "@temporalio/activity";
import { deleteOldAuditEntries } from "../audit/index.ts";
import type { DispatchConfig } from "../config/index.ts";
import { deleteOldIncidents } from "../incidents/index.ts";
import { forgetExpiredKeySecrets } from "../keys/index.ts";
import { type Db, untilAnswered } from "../lib/pg/index.ts";
import { countFailed, type DeliveryInstruments } from "../metrics/index.ts";
import { deleteOldReplays } from "../replays/index.ts";
import { ensurePartitions } from "../schema/index.ts";
import { forgetExpiredSecrets } from "../webhooks/index.ts";
import { retentionStep } from "./retention.ts";

/**
 * Creates the retention activity. It creates the partitions of the coming week, applies the retention step by step
 * until nothing is left, and deletes expired secrets. A retry continues where the previous attempt stopped.
 *
 * @param heartbeats performs work with the heartbeats of its activity, whose end aborts the signal
 */
export function createDeleteExpired(
  { db, directDb, instruments }: { db: Db; directDb: Db; instruments: DeliveryInstruments },
  { retentionDays, payloadRetentionDays, auditRetentionDays }: DispatchConfig,
  heartbeats: (work: (stop: AbortSignal) => Promise<{ summary: string }>) => Promise<{ summary: string }>,
) {
  return (): Promise<{ summary: string }> =>
    heartbeats(async (stop) => {
      const { cancellationSignal: signal } = Context.current();
      const answer = <T>(ask: () => Promise<T>) => untilAnswered(ask, { signal });
      await answer(() => ensurePartitions(db, retentionDays));
      await answer(() => forgetExpiredSecrets(db));
      await answer(() => forgetExpiredKeySecrets(db));
      await answer(() => deleteOldReplays(db, retentionDays));
      const total = { expired: 0, payloads: 0, keys: 0, runs: 0, partitions: 0, audit: 0, incidents: 0 };
      let changes: number;
      do {
        const step = await answer(() =>
          retentionStep(db, directDb, retentionDays, payloadRetentionDays, stop),
        );
        countFailed(instruments.failed, step.expired, "expired");
        const audit = await answer(() => deleteOldAuditEntries(db, auditRetentionDays));
        const incidents = await answer(() => deleteOldIncidents(db, retentionDays));
        const done = { ...step, partitions: step.partitions.length, audit, incidents };
        for (const what of Object.keys(total) as (keyof typeof total)[]) total[what] += done[what];
        changes = Object.values(done).reduce((sum, each) => sum + each);
      } while (changes > 0 && !stop.aborted);
      const { expired, payloads, keys, runs, partitions, audit, incidents } = total;
      return {
        summary: `${expired} open deliveries expired; ${payloads} payloads erased; ${partitions} partitions, ${keys} idempotency keys, ${runs} runs, ${audit} audit entries, ${incidents} incidents deleted`,
      };
    });
}
