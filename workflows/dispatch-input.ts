/** What the schedule gives each run: counts, times and names only, since it is shown in the Temporal UI. */
export interface DispatchInput {
  /** Pumps at once, over all workers. */
  width: number;
  /** No pump starts later than this after the run began; what is pending then is the next run's, in milliseconds. */
  pumpPhaseMs: number;
  /** A worker silent for this long is taken for dead, in milliseconds. */
  heartbeatTimeoutMs: number;
  /** Wait before the first retry, in milliseconds. */
  retryInitialDelayMs: number;
  /** Each further wait is this many times the one before. */
  retryBackoffCoefficient: number;
  /** Task queue of retryDeliveries. */
  retryTaskQueue: string;
  /** Whether FailingWebhookIds and FailingHosts are registered in the namespace. */
  searchAttributes: boolean;
  /** History length from which the run goes on in a new execution, in events. */
  continueAsNewAfter: number;
  /** Set by continue-as-new: the first attempts are through. */
  firstAttemptsDone?: boolean;
  /** Set by a run that hands over its retries: the run whose deliveries these are, instead of the workflow's own. */
  run?: RunKey;
}

/** How the database knows a run. */
export interface RunKey {
  workflowId: string;
  firstRunId: string;
}

/** A run's account, as its result in the Temporal UI. */
export interface DispatchReport {
  summary: string;
  sent: number;
  delivered: number;
  failed: number;
  /** Put back to pending, after a cancel. */
  putBack: number;
}

/** One retry group, as the workflow needs to know it. */
export interface RetryGroup {
  group: number;
  /** `shop.example, 4 deliveries`. */
  summary: string;
  /** Wait before it is due, in milliseconds. */
  delayMs: number;
}

/** What is left of a run after its first attempts. */
export interface UndeliveredList {
  groups: RetryGroup[];
  /** For the search attributes: at most 200 each. */
  webhookIds: string[];
  hosts: string[];
}

/** The type of the failure that ends a retry activity whose deliveries have used up their attempts. */
export const DELIVERIES_FAILED = "DeliveriesFailed";
/** The type of the failure of a retry pass after which deliveries remain; details hold the wait in milliseconds. */
export const UNDELIVERED = "Undelivered";
