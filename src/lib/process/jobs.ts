import { systemClock } from "./clock.ts";

/** Work that a process repeats. */
export interface Job<Parts> {
  /** What the job does, for the watch of the thread, such as `fold statistics`. */
  name: string;
  /** The interval, in whole seconds. Defaults to 1. */
  everyS?: number;
  /** The number of rows that one run handles at most. A run that has handled as many is repeated at once. Defaults to no limit. */
  most?: number;
  /** Returns the number of rows handled, if there is a limit. @param stop aborted when the jobs are stopped */
  run: (parts: Parts, stop: AbortSignal) => Promise<unknown>;
}

/**
 * Runs jobs one after the other, in rounds of a second. An error ends its round: the next round begins with the first job.
 *
 * @param options.works told the name of each job that starts. Defaults to nothing
 * @param options.onError told the errors of rounds
 * @returns stops the jobs
 */
export function startJobs<Parts>(
  jobs: readonly Job<Parts>[],
  parts: Parts,
  { works, onError }: { works?: ((on: string) => void) | undefined; onError: (error: unknown) => void },
): () => Promise<void> {
  const end = new AbortController();
  const { signal } = end;
  async function run(): Promise<void> {
    for (let round = 0; !signal.aborted; round += 1) {
      try {
        for (const { name, everyS = 1, most = Number.POSITIVE_INFINITY, run } of jobs) {
          if (round % everyS !== 0) continue;
          works?.(name);
          // A run that was not full has left only what came meanwhile.
          while (Number(await run(parts, signal)) >= most && !signal.aborted);
        }
      } catch (error) {
        if (!signal.aborted) onError(error);
      }
      await systemClock.wait(1_000, { signal, ref: false });
    }
  }
  const running = run();
  return () => {
    end.abort();
    return running;
  };
}
