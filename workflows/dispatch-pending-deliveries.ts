import {
  ActivityCancellationType,
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
import { type Activities, databaseActivities } from "./activities.ts";
import type { DispatchInput, DispatchReport, LiveWorker, RunKey } from "./dispatch-input.ts";
import { createRetryGroups, type RetryGroups } from "./run/retry-groups.ts";
import { RunDescription } from "./run/run-description.ts";

/** The minimum and maximum interval between requests for failed deliveries while pumps work, in milliseconds. */
const ASK_MS = { min: 1_000, max: 15_000 };
/** The maximum number of such requests during a pump. Each adds about eleven events to the history. */
const MAX_ASKS = 2_000;
/** The time after which a worker that does not take its pump is skipped. */
const SCHEDULE_TO_START_TIMEOUT = "5 seconds";
/** The number of times a pump is offered to a worker before the worker is skipped. */
const MAX_OFFERS = 2;

/**
 * Runs one dispatch: a pump on each live worker makes the first attempts of all pending deliveries, and failed
 * deliveries are retried by webhook. The result contains the totals. The database counts deliveries; the workflow
 * only decides when and how often to act.
 */
export async function dispatchPendingDeliveries(input: DispatchInput): Promise<DispatchReport> {
  const key: RunKey = { firstRunId: workflowInfo().firstExecutionRunId };
  const description = new RunDescription();
  const retries = createRetryGroups(input, key, description);
  const { closeRun } = databaseActivities(input, "the run's totals");
  try {
    if (!input.firstAttemptsDone) await makeFirstAttempts(input, key, retries, description);
    // A new execution retries first even with a small limit. Otherwise it would continue as new forever.
    let isNew = Boolean(input.firstAttemptsDone);
    for (;;) {
      const recorded = description.firstAttemptsEnded();
      if (recorded) await recorded;
      await retries.ended();
      const { historyLength, continueAsNewSuggested } = workflowInfo();
      if (!isNew && (continueAsNewSuggested || historyLength >= input.continueAsNewAfter))
        await continueAsNew<typeof dispatchPendingDeliveries>({ ...input, firstAttemptsDone: true });
      isNew = false;
      const { groups } = await retries.ask();
      if (groups.length > 0) continue;
      const closing = await closeRun(key);
      if (closing.open > 0) continue;
      await description.closed(closing);
      return closing.report;
    }
  } catch (error) {
    // Cancelled by an operator: other runs adopt the open retries.
    if (isCancellation(error))
      await CancellationScope.nonCancellable(() => closeRun({ ...key, abandon: true }));
    throw error;
  }
}

/** Runs pumps on all live workers and concurrently retries failed deliveries. */
async function makeFirstAttempts(
  input: DispatchInput,
  key: RunKey,
  retries: RetryGroups,
  description: RunDescription,
): Promise<void> {
  /** The task queues of the workers that have a pump. */
  const pumps = new Set<string>();
  const until = Date.now() + input.pumpMs;
  const askMs = Math.max(
    Math.min(ASK_MS.max, Math.max(ASK_MS.min, input.retryInitialDelayMs)),
    input.pumpMs / MAX_ASKS,
  );
  /** Whether a later run's pumps have taken over first attempts. */
  let tookOver = false;
  let cancelled: unknown;

  /**
   * Runs the pump of one worker until it ends or is lost. Throws only if the run is cancelled: later runs deliver what is
   * unclaimed.
   */
  async function runPump({ taskQueue, name }: LiveWorker): Promise<void> {
    const { deliverPending } = proxyActivities<Activities>({
      taskQueue,
      summary: name,
      scheduleToStartTimeout: SCHEDULE_TO_START_TIMEOUT,
      // A pump ends by itself with its last response. This timeout ends one that hangs.
      startToCloseTimeout: input.pumpMs + 600_000,
      heartbeatTimeout: input.heartbeatTimeoutMs,
      cancellationType: ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
      retry: { maximumAttempts: 1 },
    });
    for (let offer = 1; ; offer += 1) {
      try {
        // A pump that starts late ends with the others: first attempts end within the run's time.
        const forMs = Math.max(0, until - Date.now());
        const result = await deliverPending({ ...key, lingers: input.lingers, forMs });
        tookOver ||= result.end === "superseded";
        return description.addPump(result);
      } catch (error) {
        if (isCancellation(error)) throw error;
        const cause = error instanceof ActivityFailure ? error.cause : undefined;
        const wasTaken = !(cause instanceof TimeoutFailure && cause.timeoutType === "SCHEDULE_TO_START");
        if (!wasTaken && offer < MAX_OFFERS) continue;
        log.warn("a pump gave up", { error, worker: name });
        // The worker may be live, and still make attempts.
        if (wasTaken) retries.expectLate();
        return;
      }
    }
  }

  function startPumps(workers: readonly LiveWorker[]): void {
    for (const worker of workers) {
      const { taskQueue } = worker;
      if (pumps.has(taskQueue)) continue;
      pumps.add(taskQueue);
      void runPump(worker)
        .catch((error) => {
          cancelled = error;
        })
        .finally(() => pumps.delete(taskQueue));
    }
  }

  const lingers = () => input.lingers && !tookOver && Date.now() < until;
  startPumps((await retries.ask()).workers);
  for (;;) {
    const ended = await condition(() => pumps.size === 0, askMs);
    if (cancelled !== undefined) throw cancelled;
    if (ended && !lingers()) break;
    // All pumps were lost. Their workers may recover.
    if (ended) await sleep(askMs);
    const { workers } = await retries.ask();
    // Workers that started in the meantime, or whose pump was lost.
    if (lingers()) startPumps(workers);
  }
  if (retries.areRunning()) await retries.askAfterPumps();
}
