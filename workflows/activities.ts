import { proxyActivities } from "@temporalio/workflow";
import type {
  DispatchInput,
  RunClosing,
  RunKey,
  RunTotals,
  Searchable,
  UndeliveredList,
} from "./dispatch-input.ts";

/** The outcomes of the deliveries of an activity. */
export interface AttemptCounts extends RunTotals {
  /** Failed attempts with retries left. */
  retrying: number;
}

/** Options of a pump. */
export interface PumpOptions {
  /** Whether the pump continues when nothing is pending, and sends events as they are published. */
  lingers: boolean;
  /** The maximum duration, in milliseconds. */
  forMs: number;
}

/** The result of a pump. */
export interface PumpResult extends AttemptCounts {
  /**
   * The reason for its end: nothing was pending, a later run's pump took over, its time was over, or it was stopped.
   */
  end: "done" | "superseded" | "time" | "stopped";
}

/** A one-line summary for the Temporal UI. */
interface Summarised {
  summary: string;
}

/** The activities that the workflows call. Implemented by workers. */
export interface Activities {
  /** Makes first attempts of pending deliveries in this process. */
  deliverPending(input: RunKey & PumpOptions): Promise<PumpResult & Summarised>;
  /** Lists failed deliveries to retry, in groups, and the live workers, including this one. */
  listUndelivered(run: RunKey): Promise<UndeliveredList>;
  /**
   * Sends the due retries of a group. Throws while any remain, with the delay until the next is due; and at the end
   * if any has failed finally, so that operators see it. `of` names webhook and host in the Temporal UI.
   */
  retryDeliveries(input: RunKey & { group: number; of?: string }): Promise<AttemptCounts & Summarised>;
  /**
   * Closes the run and returns its totals, unless it has retries left. An abandoned run leaves its retries to other
   * runs.
   */
  closeRun(input: RunKey & { abandon?: boolean }): Promise<RunClosing>;
  /** Reads which search attributes are registered now. A local activity. */
  readSearchable(): Promise<Searchable>;
  /** Works on a replay for some minutes. `more` unless it is completed, paused or cancelled. */
  replay(input: { replayId: string }): Promise<{ more: boolean } & Summarised>;
  /** Pauses a replay: its workflow was cancelled, and would otherwise start again. */
  pauseReplay(input: { replayId: string }): Promise<void>;
  /** Applies the retention. */
  deleteExpired(): Promise<Summarised>;
}

/**
 * Activities that only query the database: they are retried until it answers. If the worker is lost or stopped, the activity
 * runs elsewhere after `heartbeatTimeoutMs`, because its run waits for it.
 *
 * @param summary what the Temporal UI shows
 */
export const databaseActivities = ({ heartbeatTimeoutMs }: DispatchInput, summary: string) =>
  proxyActivities<Pick<Activities, "closeRun" | "listUndelivered">>({
    summary,
    startToCloseTimeout: "10 minutes",
    heartbeatTimeout: heartbeatTimeoutMs,
    retry: { initialInterval: "1 second", maximumInterval: "30 seconds" },
  });
