import { setTimeout as wait } from "node:timers/promises";
import pLimit from "p-limit";
import type { Logger } from "pino";
import type { Activities } from "../../workflows/activities.ts";
import type { DeliveryConfig } from "../config/index.ts";
import { type Db, untilAnswered } from "../lib/pg/index.ts";
import { announceQueued } from "../queue/index.ts";
import { CONCURRENT_STEPS, pauseAfterRound, STEPS_PER_ROUND } from "./pace.ts";
import { changeReplay, getReplay } from "./replays.ts";
import { endReplay, keepReplay, type RunningReplay } from "./running.ts";
import { findReady, listWebhooksOf, stepWebhook } from "./steps.ts";

/** The duration of one activity, in milliseconds: the progress is in the workflow's history as often. */
const ACTIVITY_MS = 600_000;
/** The age from which an event counts as stored, in milliseconds: publishing takes less. */
const SETTLED_MS = 10_000;

/**
 * Creates the activities of replays.
 *
 * @param retentionDays older deliveries are skipped
 * @param heartbeats performs work with the heartbeats of its activity, whose end aborts the signal
 */
export function createReplayActivities(
  { db, log, delivery }: { db: Db; log: Logger; delivery: Pick<DeliveryConfig, "maxPendingPerWebhook"> },
  { retentionDays }: { retentionDays: number },
  heartbeats: <T>(work: (signal: AbortSignal) => Promise<T>) => Promise<T>,
): Pick<Activities, "replay" | "pauseReplay"> {
  const concurrent = pLimit(CONCURRENT_STEPS);
  const limits = { retentionDays, settledMs: SETTLED_MS, maxPending: delivery.maxPendingPerWebhook };

  /** Does what can be done now. Returns the pause before more can be done, in milliseconds. */
  async function work(replay: RunningReplay, signal: AbortSignal): Promise<number> {
    if (replay.listedTo !== null) await untilAnswered(() => listWebhooksOf(db, replay), { signal });
    const { ready, more } = await untilAnswered(() => findReady(db, replay.id), { signal });
    const timedStep = async (webhookId: bigint) => {
      const began = performance.now();
      const step = await stepWebhook(db, replay, webhookId, limits);
      return step && { ...step, tookMs: performance.now() - began };
    };
    const steps = await concurrent.map(ready.slice(0, STEPS_PER_ROUND), (webhookId) =>
      untilAnswered(() => timedStep(webhookId), { signal }),
    );
    const moved = steps.filter((step) => step !== undefined);
    if (moved.some(({ queued }) => queued > 0)) await untilAnswered(() => announceQueued(db), { signal });
    return pauseAfterRound(moved, more || replay.listedTo !== null);
  }

  /** The state and counts of a replay. */
  async function inWords(replayId: string, signal: AbortSignal): Promise<string> {
    const replay = await untilAnswered(() => getReplay(db, "everything", replayId), { signal });
    if (!replay) return "deleted";
    const { state, queued, skipped, progress } = replay;
    const examined = state === "completed" ? "" : `, ${Math.floor(progress * 100)} % examined`;
    return `${state}: ${queued} deliveries queued, ${skipped} skipped${examined}`;
  }

  /** Works until the replay ends, is paused or cancelled, or the time of the activity is over. Returns whether there is more to do. */
  async function workOn(replayId: string, signal: AbortSignal): Promise<boolean> {
    const until = Date.now() + ACTIVITY_MS;
    for (;;) {
      const replay = await untilAnswered(() => keepReplay(db, replayId), { signal });
      if (!replay) return false;
      const pauseMs = await work(replay, signal);
      if (await untilAnswered(() => endReplay(db, replayId), { signal })) return false;
      if (Date.now() > until) return true;
      await wait(pauseMs, undefined, { signal });
    }
  }

  return {
    pauseReplay: ({ replayId }) =>
      heartbeats(async (signal) => {
        await untilAnswered(() => changeReplay(db, "everything", replayId, "pause"), { signal });
        log.info({ replayId }, "replay paused, because its workflow was cancelled");
      }),

    replay: ({ replayId }) =>
      // If the signal aborts, the activity ends as cancelled, or fails and another worker continues.
      heartbeats(async (signal) => {
        const more = await workOn(replayId, signal);
        const summary = await inWords(replayId, signal);
        if (!more) log.info({ replayId, outcome: summary }, "the work on a replay ended");
        return { more, summary };
      }),
  };
}
