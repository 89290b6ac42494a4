import { ApplicationFailure, Context } from "@temporalio/activity";
import type { Activities } from "../../../workflows/activities.ts";
import { countsInWords } from "../../../workflows/counts-in-words.ts";
import { DELIVERIES_FAILED, UNDELIVERED } from "../../../workflows/dispatch-input.ts";
import { listHeldBack } from "../../breakers/index.ts";
import type { DispatchConfig } from "../../config/index.ts";
import { numberSetting } from "../../contract/webhooks/settings.ts";
import type { DeliveryEngine } from "../../delivery/index.ts";
import { untilAnswered } from "../../lib/pg/index.ts";
import {
  adoptRetries,
  assignGroups,
  closeExpiredRuns,
  closeRun,
  leavePaused,
  listLiveWorkers,
  MAX_ADOPTED_PER_STEP,
} from "../../queue/index.ts";
import { pumpMsOf } from "../schedule.ts";
import type { KeepAlive, RunWork } from "./keep-alive.ts";
import { MAX_HELD_BACK, summariseGroups, summariseHeldBack, summarisePass } from "./summaries.ts";

/** The delay before another worker retries a stopped pass, in milliseconds. */
const STOPPED_RETRY_DELAY_MS = 1_000;

/** The time by which a later failure must be due earlier for the workflow to wait, in milliseconds. */
const MIN_EARLIER_MS = 5_000;
/** The shortest delay of a retry that a webhook may have, in milliseconds. */
const MIN_OWN_RETRY_MS = 1_000 * numberSetting("firstRetrySeconds").min;
/** The time from which a group always waits in its workflow, in milliseconds: rare, and too long to be late by. */
const LONG_WAIT_MS = 1_800_000;
/** The age of a run up to which its workflow waits, in milliseconds. Each time adds some events to the history. */
const MAX_WAKING_MS = 600_000;

/**
 * The interval between adoptions of a process without a reason, in milliseconds: that in which runs ask, of which one alone adopts.
 * Retries may become adoptable in other processes, by a circuit breaker that lets a probe through, or by time.
 */
const ADOPT_MS = { min: 1_000, max: 15_000 };
/** The minimum time before they are due from which retries without a run are adopted, in milliseconds. Defaults to the interval of runs. */
const MIN_AHEAD_MS = 60_000;
/** The time of the last adoption with which the next request adopts. */
const ADOPT_NEXT = Number.NEGATIVE_INFINITY;

/** Creates the activities of dispatch runs on the delivery engine of a process. */
export function createActivities(
  engine: DeliveryEngine,
  config: DispatchConfig,
  alive: KeepAlive,
): Pick<Activities, "deliverPending" | "listUndelivered" | "retryDeliveries" | "closeRun"> {
  const { db } = engine;
  const { retryInitialDelayMs } = config;
  const pumpMs = pumpMsOf(config);
  // Within the first retry delay no delivery is due twice, so one attempt of the activity makes at most one attempt per delivery,
  // except for webhooks with shorter delays.
  const passOptions = { horizonMs: Math.min(pumpMs, retryInitialDelayMs), forMs: pumpMs };

  /**
   * Whether another delivery of the run may fail, and be due, before a pass that begins so much later. The workflow then waits for
   * it, because an activity that waits for its next attempt cannot be woken.
   */
  function mayBeWoken({ started }: RunWork["run"], delayMs: number): boolean {
    if (delayMs > LONG_WAIT_MS) return true;
    if (delayMs < Math.min(retryInitialDelayMs, MIN_OWN_RETRY_MS) + MIN_EARLIER_MS) return false;
    return performance.now() - started < Math.min(config.intervalMs, MAX_WAKING_MS);
  }

  const adoptMs = Math.min(ADOPT_MS.max, Math.max(ADOPT_MS.min, retryInitialDelayMs));
  /** The latest run that has adopted retries, when, and the revision of the webhooks before. */
  let adopted = { runId: 0, at: ADOPT_NEXT, revision: engine.revision() };

  /** Adopts retries if this is a run's first request, if a user has changed a webhook, or if the last adoption was long ago. */
  async function adopt(runId: number): Promise<void> {
    const revision = engine.revision();
    const at = performance.now();
    const waitMs = revision === adopted.revision ? adoptMs : ADOPT_MS.min;
    if (runId <= adopted.runId && at < adopted.at + waitMs) return;
    adopted = { runId: Math.max(runId, adopted.runId), at, revision };
    const retries = await untilAnswered(() =>
      adoptRetries(db, runId, Math.max(MIN_AHEAD_MS, config.intervalMs)),
    );
    if (retries >= MAX_ADOPTED_PER_STEP) adopted.at = ADOPT_NEXT;
  }

  return {
    deliverPending({ lingers, forMs, ...key }) {
      return alive.onRun(key, async ({ run, counts }, stop) => {
        const ended = await untilAnswered(() => closeExpiredRuns(db));
        if (ended > 0) {
          adopted.at = ADOPT_NEXT;
          engine.instruments.leasesExpired.add(ended, { holder: "run" });
          engine.log.warn({ runs: ended }, "gave back the deliveries of runs whose lease ran out");
        }
        const result = await engine.pumps.run(run.id, { lingers, forMs }, stop, counts);
        return { ...result, summary: countsInWords(result) };
      });
    },

    listUndelivered(key) {
      return alive.onRun(key, async (work) => {
        const { run } = work;
        await untilAnswered(() => leavePaused(db, run.id));
        await adopt(run.id);
        const failing = await untilAnswered(() => assignGroups(db, run.id));
        await engine.lease.start();
        const workers = await untilAnswered(() => listLiveWorkers(db));
        const heldBack = summariseHeldBack(await untilAnswered(() => listHeldBack(db, MAX_HELD_BACK)));
        const list = { ...summariseGroups(failing), workers, heldBack };
        work.keepMs = Math.max(0, ...list.groups.map(({ delayMs }) => delayMs)) + alive.leaseMs;
        return list;
      });
    },

    retryDeliveries({ group, of: _, ...key }) {
      return alive.onRun(key, async (work, stop) => {
        const { run } = work;
        const result = await engine.retries.run({ runId: run.id, group }, passOptions, stop, work.counts);
        const { status, complete, lastFailure: _, ...counts } = result;
        if (status.open > 0) {
          const delayMs = Math.max(complete ? 1 : STOPPED_RETRY_DELAY_MS, status.delayMs);
          work.keepMs = delayMs + alive.leaseMs;
          throw ApplicationFailure.create({
            type: UNDELIVERED,
            message: summarisePass(result),
            nonRetryable: mayBeWoken(run, delayMs),
            nextRetryDelay: delayMs,
            details: [{ delayMs }],
          });
        }
        if (counts.failed > 0)
          throw ApplicationFailure.nonRetryable(summarisePass(result), DELIVERIES_FAILED);
        return { ...counts, summary: countsInWords(counts) };
      });
    },

    closeRun({ abandon = false, ...key }) {
      return alive.onRun(key, async ({ run: { id } }) => {
        const { open: left, ...totals } = await untilAnswered(() => closeRun(db, id, abandon));
        if (abandon) adopted.at = ADOPT_NEXT;
        if (left === 0 && totals.sent > 0) {
          const { sent, delivered, failed, putBack } = totals;
          const counts = { attempts: sent, delivered, retried: sent - delivered - failed, failed, putBack };
          const { workflowId } = Context.current().info.workflowExecution as { workflowId: string };
          engine.log.info({ workflowId, ...counts }, "dispatch run ended");
        }
        return { report: { summary: countsInWords(totals, "retried"), ...totals }, open: left };
      });
    },
  };
}
