/** Names used in a Temporal namespace. Two services in one namespace need different names. */
export type TemporalNames = ReturnType<typeof temporalNames>;

/** @param prefix distinguishes several services in one namespace, for example in tests */
export const temporalNames = (prefix = "") => ({
  /** The id of the dispatch schedule, and the prefix of its runs' ids. */
  scheduleId: `${prefix}dispatch-pending-deliveries`,
  /** The id of the schedule that applies the retention. */
  retentionScheduleId: `${prefix}delete-expired`,
  /** The prefix of all names. */
  prefix,
  /** The task queue of workflows and first attempts. */
  dispatchTaskQueue: `${prefix}webhook-dispatch`,
  /** The task queue of retries, separate so that failing webhooks do not delay first attempts. */
  retryTaskQueue: `${prefix}webhook-retries`,
});
