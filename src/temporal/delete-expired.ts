import { Context } from "@temporalio/activity";
import type { DispatchConfig } from "../config/config.ts";
import { deleteOldAuditEntries } from "../db/audit/audit-log.ts";
import { retentionStep } from "../db/deliveries/retention.ts";
import { untilAnswered } from "../db/faults.ts";
import { ensurePartitions } from "../db/partitions.ts";
import { deleteOldReplays } from "../db/replays/replays.ts";
import { forgetExpiredSecrets } from "../db/webhooks/webhook-secrets.ts";
import type { DeliveryEngine } from "../delivery/engine.ts";
import { countFailed } from "../metrics/instruments.ts";
import type { KeepAlive } from "./keep-alive.ts";

/**
 * Creates the retention activity. It creates the partitions of the coming week, applies the retention step by step
 * until nothing is left, and deletes expired secrets. A retry continues where the previous attempt stopped.
 */
export function createDeleteExpired(
  { db, directDb, stopping, instruments }: DeliveryEngine,
  { retentionDays, payloadRetentionDays, auditRetentionDays }: DispatchConfig,
  alive: KeepAlive,
) {
  return (): Promise<{ summary: string }> =>
    alive.heartbeats(async (tell) => {
      const { cancellationSignal: signal } = Context.current();
      const stop = AbortSignal.any([stopping, signal]);
      await untilAnswered(() => ensurePartitions(db, retentionDays), { signal });
      await untilAnswered(() => forgetExpiredSecrets(db), { signal });
      await untilAnswered(() => deleteOldReplays(db, retentionDays), { signal });
      const total = { expired: 0, payloads: 0, keys: 0, runs: 0, partitions: 0, audit: 0 };
      tell(total);
      for (;;) {
        const step = await untilAnswered(
          () => retentionStep(db, directDb, retentionDays, payloadRetentionDays, stop),
          { signal },
        );
        countFailed(instruments.failed, step.expired, "expired");
        total.expired += step.expired;
        total.payloads += step.payloads;
        total.keys += step.keys;
        total.runs += step.runs;
        total.partitions += step.partitions.length;
        const audit = await untilAnswered(() => deleteOldAuditEntries(db, auditRetentionDays), { signal });
        total.audit += audit;
        const nothing =
          step.expired + step.payloads + step.keys + step.runs + step.partitions.length + audit === 0;
        if (nothing || stop.aborted) break;
      }
      const { expired, payloads, keys, runs, partitions, audit } = total;
      return {
        summary: `${expired} open deliveries expired; ${payloads} payloads erased; ${partitions} partitions, ${keys} idempotency keys, ${runs} runs, ${audit} audit entries deleted`,
      };
    });
}
