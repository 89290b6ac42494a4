/** A filter: an expression in CEL for events of a type. */
export interface FilterText {
  /** The number of the event type. */
  process: number;
  expression: string;
}

/** What a filter reads of an event. */
export interface FilterInput {
  payload: string;
  userId: string;
}

/** The result of an evaluation. */
export interface FilterResult {
  /** Whether the event is sent. It is if its filter cannot be evaluated. */
  sent: boolean;
  /**
   * Why the filter cannot be evaluated. `invalid`: it does not compile. `failed`: not for this event. `slow`: it took longer than the
   * limit.
   */
  problem?: "invalid" | "failed" | "slow";
  /** With a problem: what is wrong, and what is allowed. */
  error?: string;
}

/** An evaluation of a filter. */
export interface FilterJob {
  /** The key or app. Owners share the thread's time evenly. */
  owner: string;
  /** The webhook. The webhooks of an owner share its time evenly. */
  webhook: string;
  /** Jobs with the same object send it to the thread once. */
  filter: FilterText;
  /** Jobs with the same object send and read it once. Without it, the filter is only compiled. */
  event?: FilterInput | undefined;
  /** Whether the result is still wanted. Unwanted jobs are not evaluated. Defaults to true. */
  isWanted?: () => boolean;
  /**
   * Called once with the result, unless the job is not wanted any more.
   *
   * @param estimateMs the time that the webhook's next evaluation is expected to take, in milliseconds
   */
  done: (result: FilterResult, estimateMs: number) => void;
}

/** Evaluates filters outside of the caller's turn. */
export interface FilterRunner {
  run(job: FilterJob): void;
}

/** Runs a job for a caller who waits for its result. */
export function runFilter(runner: FilterRunner, job: Omit<FilterJob, "done">): Promise<FilterResult> {
  return new Promise((resolve) => runner.run({ ...job, done: resolve }));
}
