/** Open deliveries: claims, results, retry groups, runs and leases. */
export { readBacklog } from "./backlog.ts";
export * from "./changes.ts";
export { type ClaimedDelivery, type ClaimResult, claimDue, type RetryClaim, release } from "./claims.ts";
export { isFree, ofWebhook, WORKERS } from "./conditions.ts";
export { cancelFirst } from "./deleted-webhooks.ts";
export { cancelOfErased, cancelOfWebhooks, endExpired, endFiltered } from "./endings.ts";
export { type EventContent, loadContents } from "./event-contents.ts";
export { heedWishes, type ReceiverWish, type WebhookWish } from "./holds.ts";
export { type JobParts, QUEUE_JOBS } from "./jobs.ts";
export { deleteOldRuns } from "./old-runs.ts";
export { readOverdueRetries } from "./overdue-retries.ts";
export { createPendingClaims } from "./pending-claims.ts";
export {
  ATTEMPTS_PER_ROUND,
  type AttemptOutcome,
  type AttemptResult,
  type RecordedState,
  type RetrySpacing,
  recordAttempts,
} from "./results.ts";
export {
  adoptRetries,
  assignGroups,
  type FailingWebhook,
  type GroupKey,
  type GroupStatus,
  leavePaused,
  MAX_ADOPTED_PER_STEP,
  settleGroups,
} from "./retry-groups.ts";
export { CHANGE } from "./rollup-deltas.ts";
export { closeExpiredRuns, closeRun, openRuns, type Renewal, type RunWish, renewLeases } from "./runs.ts";
export { findOldest, readWaiting, type Waiting } from "./waiting.ts";
export { addWorker, listLiveWorkers, removeWorker, renewWorker } from "./workers.ts";
