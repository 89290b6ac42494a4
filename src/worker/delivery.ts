import { createDeliveryEngine } from "../delivery/engine.ts";
import { startDeliveryWorker } from "../temporal/worker.ts";

/** What delivers, in this process or in others. */
export interface Delivery {
  /** Why nothing is delivered at the moment; empty when something can be. */
  unready(): Promise<string[]>;
  /** Finishes what is in flight and gives back the rest. */
  stop(): Promise<void>;
}

/**
 * Delivers in this process: the engine, and Temporal's workers that use it. Resolves once they first poll.
 *
 * @param parts.stopping when it is aborted, nothing new is claimed or sent; it is to be aborted before `stop` is called
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
