import type { StoredCatalogue } from "../event-types/index.ts";
import type { FilterJob, FilterResult } from "./filter-runner.ts";

/** What a thread is started with. */
export interface ThreadData {
  /** Shared with the thread, which counts in it while it is busy. */
  progress: Int32Array<SharedArrayBuffer>;
  /** The outcomes of the latest jobs, by their number modulo the length: `NONE`, `SENT` or `NOT_SENT`. */
  outcomes: Int8Array<SharedArrayBuffer>;
  /** The registered event types. */
  catalogue: Pick<StoredCatalogue, "files" | "types">;
}

/** The outcome of a job with a problem. */
export const NONE = 0;
export const SENT = 1;
export const NOT_SENT = 2;

/** The index in `progress` of the number of jobs that were started. */
export const JOBS = 0;
/** The index in `progress` of the number of compilations and evaluations that were started. */
export const PHASES = 1;

/** A job as it is sent to a thread, in an array. */
export type ThreadJob = Pick<FilterJob, "filter" | "event">;

/** The answer to a job, with the time that it took in milliseconds. The jobs of an array are answered together. */
export type ThreadResult = [result: FilterResult, tookMs: number];
