/** Names used in a Temporal namespace. Two services in one namespace need different names. */
export interface TemporalNames {
  /** The id of the dispatch schedule, and the prefix of its runs' ids. */
  scheduleId: string;
  /** The id of the schedule that applies the retention. */
  retentionScheduleId: string;
  /** The prefix of the workflow ids of replays. */
  replayPrefix: string;
  /** The task queue of workflows and first attempts. */
  dispatchTaskQueue: string;
  /** The task queue of retries, separate so that failing webhooks do not delay first attempts. */
  retryTaskQueue: string;
}

/** @param prefix distinguishes several services in one namespace, for example in tests */
export function temporalNames(prefix = ""): TemporalNames {
  return {
    scheduleId: `${prefix}dispatch-pending-deliveries`,
    retentionScheduleId: `${prefix}delete-expired`,
    replayPrefix: `${prefix}replay-`,
    dispatchTaskQueue: `${prefix}webhook-dispatch`,
    retryTaskQueue: `${prefix}webhook-retries`,
  };
}
