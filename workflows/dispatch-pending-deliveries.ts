import {
  ActivityFailure,
  CancellationScope,
  condition,
  continueAsNew,
  isCancellation,
  log,
  proxyActivities,
  sleep,
  TimeoutFailure,
  workflowInfo,
} from "@temporalio/workflow";
import type { Activities, PumpResult } from "./activities.ts";
import { pumpOptions, untilAnswered } from "./activity-options.ts";
import type { DispatchInput, DispatchReport, LiveWorker, RunKey } from "./dispatch-input.ts";
import { RetryGroups } from "./retry-groups.ts";

/** How often the failures of pumps that still work are asked for, at least and at most, in milliseconds. */
const ASK_MS = { min: 1_000, max: 15_000 };
/** And at most so often over the time of a pump: each ask adds about eleven events to the history. */
const MAX_ASKS = 2_000;
/** How often a worker is given its pump before it is skipped. */
const OFFERS = 2;

/**
 * One minute's dispatch: a pump on each live worker makes the first attempts of everything pending, and what failed is
 * retried, webhook by webhook. Its result is the account of its deliveries. Deliveries are counted in the database; this
 * decides only when and how often.
 */
export async function dispatchPendingDeliveries(input: DispatchInput): Promise<DispatchReport> {
  const key: RunKey = { firstRunId: workflowInfo().firstExecutionRunId };
  const retries = new RetryGroups(input, key);
  const { closeRun } = proxyActivities<Pick<Activities, "closeRun">>(untilAnswered(input));
  try {
    if (!input.firstAttemptsDone) await makeFirstAttempts(input, key, retries);
    // An execution that has only just begun retries first, however small the limit: it would begin again and again.
    let isNew = Boolean(input.firstAttemptsDone);
    for (;;) {
      await retries.ended();
      if (!isNew && isLong(input))
        await continueAsNew<typeof dispatchPendingDeliveries>({ ...input, firstAttemptsDone: true });
      isNew = false;
      if ((await retries.ask()).groups.length > 0) continue;
      const { report, open } = await closeRun(key);
      if (open === 0) return report;
    }
  } catch (error) {
    // Cancelled by an operator: what is open is left to other runs.
    if (isCancellation(error))
      await CancellationScope.nonCancellable(() => closeRun({ ...key, abandon: true }));
    throw error;
  }
}

/** Pumps on every live worker, and meanwhile retries what fails. */
async function makeFirstAttempts(input: DispatchInput, key: RunKey, retries: RetryGroups): Promise<void> {
  const pumps = new Map<string, Promise<void>>();
  const until = Date.now() + input.pumpMs;
  const askMs = Math.max(
    Math.min(ASK_MS.max, Math.max(ASK_MS.min, input.retryInitialDelayMs)),
    input.pumpMs / MAX_ASKS,
  );
  /** A later run's pumps make first attempts now. */
  let tookOver = false;
  let cancelled: unknown;

  function startPumps(workers: readonly LiveWorker[]): void {
    for (const worker of workers) {
      const { taskQueue } = worker;
      if (pumps.has(taskQueue)) continue;
      const pump = runPump(input, key, worker, until)
        .then((end) => {
          tookOver ||= end === "superseded";
        })
        .catch((error) => {
          cancelled = error;
        })
        .finally(() => pumps.delete(taskQueue));
      pumps.set(taskQueue, pump);
    }
  }

  const lingers = () => input.lingers && !tookOver && Date.now() < until;
  startPumps((await retries.ask()).workers);
  for (;;) {
    const ended = await condition(() => pumps.size === 0, askMs);
    if (cancelled !== undefined) throw cancelled;
    if (ended && !lingers()) return;
    // All pumps were lost: their workers may be back in a while.
    if (ended) await sleep(askMs);
    const { workers } = await retries.ask();
    // A worker that has started since, or lost its pump.
    if (lingers()) startPumps(workers);
  }
}

/**
 * The pump of one worker; answers why it ended, where it has not been lost. Throws only when the run is cancelled: what it
 * has not claimed is another run's.
 */
async function runPump(
  input: DispatchInput,
  key: RunKey,
  worker: LiveWorker,
  until: number,
): Promise<PumpResult["end"] | undefined> {
  const { deliverPending } = proxyActivities<Pick<Activities, "deliverPending">>(pumpOptions(input, worker));
  for (let offer = 1; ; offer += 1) {
    try {
      // One that starts late ends with the others: no first attempt is made later than a run promises.
      const forMs = Math.max(0, until - Date.now());
      return (await deliverPending({ ...key, lingers: input.lingers, forMs })).end;
    } catch (error) {
      if (isCancellation(error)) throw error;
      if (wasNotTaken(error) && offer < OFFERS) continue;
      log.warn("a pump gave up", { error, worker: worker.name });
      return undefined;
    }
  }
}

function wasNotTaken(error: unknown): boolean {
  const cause = error instanceof ActivityFailure ? error.cause : undefined;
  return cause instanceof TimeoutFailure && cause.timeoutType === "SCHEDULE_TO_START";
}

function isLong({ continueAsNewAfter }: DispatchInput): boolean {
  const { historyLength, continueAsNewSuggested } = workflowInfo();
  return continueAsNewSuggested || historyLength >= continueAsNewAfter;
}
