import { createDeliveryEngine } from "../delivery/engine.ts";
import { startDeliveryWorker } from "../temporal/worker.ts";

/** The delivery engine, in this process or in child processes. */
export interface Delivery {
  /** The reasons why it cannot deliver; empty if ready. */
  unready(): Promise<string[]>;
  /** Completes requests in flight and releases other claims. */
  stop(): Promise<void>;
}

/**
 * Delivers in this process: the engine, and the Temporal workers that use it. Resolves when they first poll.
 *
 * @param parts.stopping aborted to stop claiming and sending. Must be aborted before `stop` is called
 */
export async function startDelivery(
  parts: Parameters<typeof createDeliveryEngine>[0] &
    Omit<Parameters<typeof startDeliveryWorker>[0], "engine">,
): Promise<Delivery> {
  const { target, names, dispatch, log, workflowBundle } = parts;
  const engine = createDeliveryEngine(parts);
  try {
    const worker = await startDeliveryWorker({
      target,
      names,
      engine,
      dispatch,
      log,
      ...(workflowBundle ? { workflowBundle } : {}),
    });
    return {
      unready: worker.unready,
      async stop() {
        await worker.stop();
        await engine.close();
      },
    };
  } catch (error) {
    await engine.close();
    throw error;
  }
}
