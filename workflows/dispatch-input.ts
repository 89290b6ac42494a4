/** The input of a dispatch run. Contains only counts, times and names, because the Temporal UI shows it. */
export interface DispatchInput {
  /** The maximum duration of pumps, in milliseconds. */
  pumpMs: number;
  /** Whether pumps continue when nothing is pending, and send events as they are published. */
  lingers: boolean;
  /** The time without heartbeats after which a worker counts as dead, in milliseconds. */
  heartbeatTimeoutMs: number;
  /** The delay before the first retry, in milliseconds. */
  retryInitialDelayMs: number;
  /** The task queue of retryDeliveries. */
  retryTaskQueue: string;
  /** The length of the history from which the run continues in a new execution, in events. */
  continueAsNewAfter: number;
  /** Set by continue-as-new: first attempts are completed. */
  firstAttemptsDone?: boolean;
}

/** The key of a run in the database. Unchanged by continue-as-new. */
export interface RunKey {
  firstRunId: string;
}

/** A live worker. */
export interface LiveWorker {
  /** The task queue from which only this worker takes pumps. */
  taskQueue: string;
  /** `host/pid`. */
  name: string;
}

/** The outcomes of attempts. */
export interface RunTotals {
  /** The number of recorded attempts. */
  sent: number;
  delivered: number;
  /** Deliveries that failed finally. */
  failed: number;
}

/** The totals of a run, shown as its result in the Temporal UI. */
export interface DispatchReport extends RunTotals {
  summary: string;
  /** The number of retries released for other runs after a cancellation. */
  putBack: number;
}

/** The result of closing a run: its totals, and the open retries for which it must continue. */
export interface RunClosing {
  report: DispatchReport;
  open: number;
}

/** A retry group. */
export interface RetryGroup {
  group: number;
  /** `webhook 12, shop.example, 4 deliveries, last: 503`. */
  summary: string;
  /** The delay until it is due, in milliseconds. */
  delayMs: number;
}

/** The failed deliveries of a run, and the workers that can take a pump. */
export interface UndeliveredList {
  workers: LiveWorker[];
  groups: RetryGroup[];
  /** Values of the search attributes: at most 2,000 bytes each. */
  webhookIds: string[];
  hosts: string[];
  /** A line for each webhook that its circuit breaker holds back, of which at most ten are named. Version 0.3.0 omits it for none. */
  heldBack?: string[];
}

/** The registered search attributes. */
export interface Searchable {
  /** FailingWebhookIds and FailingHosts. */
  failing: boolean;
  /** DeliveryAttempts. */
  attempts: boolean;
}

/** The failure type of a retry activity whose deliveries have used all attempts. */
export const DELIVERIES_FAILED = "DeliveriesFailed";
/** The failure type of a retry pass with remaining deliveries. The details contain the delay in milliseconds. */
export const UNDELIVERED = "Undelivered";
