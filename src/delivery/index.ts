/** The engine of a delivering process: pumps, retry passes, sender, recorder. */
export { noAttempts } from "./claim-owner.ts";
export type { WorkerLease } from "./claims/worker-lease.ts";
export { createDeliveryEngine, type DeliveryEngine } from "./engine.ts";
export type { PassResult } from "./retry-pass.ts";
