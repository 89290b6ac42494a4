import type { RunClosing, RunKey, UndeliveredList } from "./dispatch-input.ts";

/** What became of the deliveries of an activity. */
export interface AttemptCounts {
  /** Attempts made and recorded. */
  sent: number;
  delivered: number;
  /** Failed, with retries left. */
  retrying: number;
  /** Failed for good. */
  failed: number;
}

/** How long a pump works. */
export interface PumpOptions {
  /** It stays when nothing is left, and sends what is published meanwhile. */
  lingers: boolean;
  /** It ends after this time at the latest, in milliseconds. */
  forMs: number;
}

/** What a pump did. */
export interface PumpResult extends AttemptCounts {
  /** Why it ended: nothing was left, a later run's pump took over, its time was over, or it was stopped. */
  end: "done" | "superseded" | "time" | "stopped";
}

/** One line for the Temporal UI. */
interface Summarised {
  summary: string;
}

/** What the workflows call; workers implement it. */
export interface Activities {
  /** First attempts of what is pending, by this process. */
  deliverPending(input: RunKey & PumpOptions): Promise<PumpResult & Summarised>;
  /** What failed and is to be retried, in groups; and the workers that live, this one in any case. */
  listUndelivered(run: RunKey): Promise<UndeliveredList>;
  /**
   * The retries of a group that are due. Throws while any remains, with the time until the next is due, and at the end when
   * any has failed for good, so that an operator sees it.
   */
  retryDeliveries(input: RunKey & { group: number }): Promise<AttemptCounts & Summarised>;
  /** Ends the run and answers its account, unless it has retries left; an abandoned one leaves them to other runs. */
  closeRun(input: RunKey & { abandon?: boolean }): Promise<RunClosing>;
  /** Deletes what is older than the retention. */
  deleteExpired(): Promise<Summarised>;
}
