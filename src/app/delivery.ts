import { createDeliveryEngine } from "../delivery/index.ts";
import { builtWorkflows } from "../dispatch/index.ts";
import { startDeliveryWorker } from "../dispatch/worker/index.ts";
import { SeenCertificates } from "../incidents/index.ts";
import { startMaintenance } from "../maintenance/index.ts";

/** The delivery engine, in this process or in child processes. */
export interface Delivery {
  /** Resolves when it first delivers, or when it was stopped before. */
  ready: Promise<void>;
  /** The reasons why it cannot deliver; empty if ready. */
  unready(): Promise<string[]>;
  /** Completes requests in flight and releases other claims. */
  stop(): Promise<void>;
}

/**
 * Delivers in this process: the engine, and the Temporal workers that use it.
 *
 * @param parts.stopping aborted to stop claiming and sending. Must be aborted before `stop` is called
 */
export function startDelivery(
  parts: Parameters<typeof createDeliveryEngine>[0] &
    Omit<Parameters<typeof startDeliveryWorker>[0], "engine" | "workflowBundle"> &
    Partial<Pick<Parameters<typeof startDeliveryWorker>[0], "workflowBundle">>,
): Delivery {
  const { target, names, dispatch, log, workflowBundle = builtWorkflows() } = parts;
  const certificates = new SeenCertificates();
  const engine = createDeliveryEngine({ ...parts, onCertificate: certificates.note });
  const stopMaintenance = startMaintenance({ ...parts, certificates, lease: engine.lease });
  const worker = startDeliveryWorker({ target, names, engine, dispatch, log, workflowBundle });
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
