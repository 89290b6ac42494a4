/** Runs workflows and activities. Loads the native code of Temporal. */
export { startDeliveryWorker, type WorkerOptions } from "./worker.ts";
