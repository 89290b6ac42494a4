import { deleteOldAuditEntries } from "../audit/index.ts";
import { areDeliveriesExpected } from "../breakers/index.ts";
import type { DispatchConfig } from "../config/index.ts";
import { createDeliveryEngine } from "../delivery/index.ts";
import { builtWorkflows } from "../dispatch/index.ts";
import { startDeliveryWorker, type WorkerOptions } from "../dispatch/worker/index.ts";
import { deleteOldIncidents, SeenCertificates } from "../incidents/index.ts";
import { forgetExpiredKeySecrets } from "../keys/index.ts";
import { createReplayActivities, deleteOldReplays, isReplaying, startReplays } from "../replays/index.ts";
import { createDeleteExpired, type Deletions } from "../retention/index.ts";
import { forgetExpiredSecrets } from "../webhooks/index.ts";
import { startMaintenance } from "./maintenance.ts";

/** The delivery engine, in this process or in child processes. */
export interface Delivery {
  /** Resolves when it first delivers, or when it was stopped before. */
  ready: Promise<void>;
  /** The reasons why it cannot deliver; empty if ready. */
  unready(): Promise<string[]>;
  /** Completes requests in flight and releases other claims. */
  stop(): Promise<void>;
}

/** What modules delete of their own tables. */
export const deletions = ({ retentionDays, auditRetentionDays }: DispatchConfig): Deletions => ({
  once: [forgetExpiredSecrets, forgetExpiredKeySecrets, (db) => deleteOldReplays(db, retentionDays)],
  steps: {
    "audit entries": (db) => deleteOldAuditEntries(db, auditRetentionDays),
    incidents: (db) => deleteOldIncidents(db, retentionDays),
  },
});

/**
 * Delivers in this process: the engine, and the Temporal workers that use it.
 *
 * @param parts.stopping aborted to stop claiming and sending. Must be aborted before `stop` is called
 */
export function startDelivery(
  parts: Omit<Parameters<typeof createDeliveryEngine>[0], "expectsMore"> &
    Pick<WorkerOptions, "target" | "names"> &
    Partial<Pick<WorkerOptions, "workflowBundle">>,
): Delivery {
  const { dispatch, workflowBundle = builtWorkflows() } = parts;
  const certificates = new SeenCertificates();
  const engine = createDeliveryEngine({
    ...parts,
    onCertificate: certificates.note,
    expectsMore: async (db) => (await isReplaying(db)) || areDeliveriesExpected(db),
  });
  const stopMaintenance = startMaintenance({ ...parts, certificates, lease: engine.lease });
  const worker = startDeliveryWorker({
    ...parts,
    engine,
    workflowBundle,
    activities: (heartbeats) => ({
      ...createReplayActivities(engine, dispatch, heartbeats),
      deleteExpired: createDeleteExpired(engine, dispatch, deletions(dispatch), heartbeats),
    }),
    repeated: {
      "looking for replays": (client) => startReplays({ ...parts, client }, dispatch.heartbeatTimeoutMs),
    },
  });
  return {
    ready: worker.ready,
    unready: worker.unready,
    async stop() {
      // Closed also if the worker cannot be stopped.
      await using closing = new AsyncDisposableStack();
      closing.defer(engine.close);
      closing.defer(stopMaintenance);
      await worker.stop();
    },
  };
}
