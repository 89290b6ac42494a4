/** What this service is called in a Temporal namespace. Two services in one namespace need different names. */
export interface TemporalNames {
  /** Also the id that the schedule's runs are named after. */
  scheduleId: string;
  /** The schedule that deletes what is older than the retention. */
  retentionScheduleId: string;
  /** Workflows, first attempts. */
  dispatchTaskQueue: string;
  /** Retries, apart, so that failing webhooks never hold up first attempts. */
  retryTaskQueue: string;
}

/** @param prefix set where several services share a namespace, as tests do */
export function temporalNames(prefix = ""): TemporalNames {
  return {
    scheduleId: `${prefix}dispatch-pending-deliveries`,
    retentionScheduleId: `${prefix}delete-expired`,
    dispatchTaskQueue: `${prefix}webhook-dispatch`,
    retryTaskQueue: `${prefix}webhook-retries`,
  };
}
