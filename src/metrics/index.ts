/** Metrics and traces. */
export type { Backlog } from "./backlog-gauges.ts";
export {
  type ApiInstruments,
  countAttempts,
  countFailed,
  createApiInstruments,
  createDeliveryInstruments,
  createOperationDuration,
  type DeliveryInstruments,
  httpAttributes,
  recordRequest,
} from "./instruments.ts";
export { type Metrics, startMetrics } from "./metrics.ts";
export { observeCertificate, observePool, observeReplicaLag } from "./process-gauges.ts";
export type { Snapshot } from "./render.ts";
export { exportMetrics } from "./service-metrics.ts";
export { drainTemporalMetrics } from "./temporal-metrics.ts";
export { cleanTraceparent } from "./traceparent.ts";
export {
  endAttempt,
  endCall,
  inBatch,
  startAttempt,
  startCall,
  startTracing,
  type Tracing,
  traceparentOf,
  within,
} from "./tracing.ts";
