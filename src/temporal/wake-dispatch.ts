import { setTimeout as wait } from "node:timers/promises";
import { Client, Connection } from "@temporalio/client";
import type { Logger } from "pino";
import type { DispatchInput } from "../../workflows/dispatch-input.ts";
import { DomainError } from "../domain-error.ts";
import type { TemporalTarget } from "./connection.ts";
import type { TemporalNames } from "./names.ts";

/** Wakes the dispatch whenever something was published. */
export interface DispatchWaker {
  /** Returns at once and never throws: a wake-up that is lost is made up for by the minute. */
  wake: () => void;
  /**
   * Wakes it now, and resolves once Temporal has been told.
   *
   * @throws DomainError FAILED_PRECONDITION while the schedule is paused, UNAVAILABLE when Temporal does not answer
   */
  wakeNow: () => Promise<void>;
  close(): Promise<void>;
}

/** Least time between two wake-ups of a process: what is published within it goes with one, in milliseconds. */
const GAP_MS = 50;
/** The same while Temporal does not answer. */
const AWAY_GAP_MS = 2_000;
/** Short, since the end of the process waits for it. */
const DEADLINE_MS = 3_000;
/** How long the schedule's settings are taken for current. */
const FRESH_MS = 5_000;

/** @returns the workflow id that all processes of the service signal */
export function wokenWorkflowId(names: TemporalNames): string {
  return `${names.scheduleId}-on-publish`;
}

/**
 * Signals the one workflow that publishing wakes, starting it where it does not run. Connects when first used; all
 * that goes wrong is logged once until it goes well again.
 *
 * The run gets the settings of the minute's schedule, so that they are set in one place, the workers; while that
 * schedule is paused nothing is woken.
 */
export function createDispatchWaker(
  target: TemporalTarget,
  names: TemporalNames,
  log: Logger,
): DispatchWaker {
  const connection = Connection.lazy(target.connectionOptions as Parameters<typeof Connection.lazy>[0]);
  const client = new Client({ connection, namespace: target.namespace });
  const stopping = new AbortController();
  let wanted = false;
  let working: Promise<void> | undefined;
  let away = false;
  let known: { input: DispatchInput; paused: boolean; at: number } | undefined;

  async function settings(): Promise<{ input: DispatchInput; paused: boolean }> {
    if (!known || performance.now() - known.at > FRESH_MS) {
      const { action, state } = await client.schedule.getHandle(names.scheduleId).describe();
      const [input] = action.args as [DispatchInput];
      known = { input, paused: state.paused, at: performance.now() };
    }
    return known;
  }

  /** Whether the dispatch was woken: not while the schedule is paused. */
  async function send(): Promise<boolean> {
    const { input, paused } = await settings();
    if (paused) return false;
    await client.workflow.signalWithStart("dispatchOnPublish", {
      workflowId: wokenWorkflowId(names),
      taskQueue: names.dispatchTaskQueue,
      args: [input],
      signal: "wake",
    });
    return true;
  }

  async function tell(): Promise<boolean> {
    return connection.withAbortSignal(stopping.signal, () =>
      connection.withDeadline(Date.now() + DEADLINE_MS, send),
    );
  }

  async function wakeNow(): Promise<void> {
    known = undefined;
    let woken: boolean;
    try {
      woken = await tell();
    } catch (err) {
      log.warn({ err }, "a dispatch that was asked for could not be started");
      throw new DomainError("UNAVAILABLE", "Temporal does not answer; try again", {
        retryAfterMs: AWAY_GAP_MS,
      });
    }
    if (woken) return;
    throw new DomainError(
      "FAILED_PRECONDITION",
      `the schedule ${names.scheduleId} is paused in Temporal; to dispatch, unpause it: temporal schedule toggle --namespace ${target.namespace} --schedule-id ${names.scheduleId} --unpause`,
      { reason: "STATE_NOT_FIT" },
    );
  }

  async function work(): Promise<void> {
    while (wanted && !stopping.signal.aborted) {
      wanted = false;
      try {
        await tell();
        if (away) log.info("publishing wakes the dispatch again");
        away = false;
      } catch (err) {
        if (stopping.signal.aborted) return;
        if (!away) log.warn({ err }, "publishing cannot wake the dispatch; the schedule delivers meanwhile");
        away = true;
      }
      await wait(away ? AWAY_GAP_MS : GAP_MS, undefined, { signal: stopping.signal }).catch(() => {});
    }
  }

  function wake(): void {
    wanted = true;
    working ??= work().finally(() => {
      working = undefined;
      // Told while the work was ending.
      if (wanted && !stopping.signal.aborted) wake();
    });
  }

  return {
    wake,
    wakeNow,
    async close() {
      stopping.abort();
      await working;
      await connection.close();
    },
  };
}
