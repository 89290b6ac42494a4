/** What the schedule gives each run: counts, times and names only, since it is shown in the Temporal UI. */
export interface DispatchInput {
  /** How long pumps work, at most, in milliseconds. */
  pumpMs: number;
  /** Pumps stay when nothing is left, and send what is published meanwhile. */
  lingers: boolean;
  /** A worker silent for this long is taken for dead, in milliseconds. */
  heartbeatTimeoutMs: number;
  /** Wait before the first retry, in milliseconds. */
  retryInitialDelayMs: number;
  /** Task queue of retryDeliveries. */
  retryTaskQueue: string;
  /** Whether FailingWebhookIds and FailingHosts are registered in the namespace. */
  searchAttributes: boolean;
  /** History length from which the run goes on in a new execution, in events. */
  continueAsNewAfter: number;
  /** Set by continue-as-new: the first attempts are through. */
  firstAttemptsDone?: boolean;
}

/** How the database knows a run: continue-as-new keeps it. */
export interface RunKey {
  firstRunId: string;
}

/** A worker that lives. */
export interface LiveWorker {
  /** On which it alone takes pumps. */
  taskQueue: string;
  /** `host/pid`. */
  name: string;
}

/** A run's account, as its result in the Temporal UI. */
export interface DispatchReport {
  summary: string;
  sent: number;
  delivered: number;
  failed: number;
  /** Left to other runs, after a cancel. */
  putBack: number;
}

/** A run that is to be closed: its account, and the retries for which it must go on. */
export interface RunClosing {
  report: DispatchReport;
  open: number;
}

/** One retry group, as the workflow needs to know it. */
export interface RetryGroup {
  group: number;
  /** `shop.example, 4 deliveries`. */
  summary: string;
  /** Wait before it is due, in milliseconds. */
  delayMs: number;
}

/** What failed so far in a run, and who can be given a pump. */
export interface UndeliveredList {
  workers: LiveWorker[];
  groups: RetryGroup[];
  /** For the search attributes: values of at most 2,000 bytes together, each. */
  webhookIds: string[];
  hosts: string[];
}

/** The type of the failure that ends a retry activity whose deliveries have used up their attempts. */
export const DELIVERIES_FAILED = "DeliveriesFailed";
/** The type of the failure of a retry pass after which deliveries remain; details hold the wait in milliseconds. */
export const UNDELIVERED = "Undelivered";
