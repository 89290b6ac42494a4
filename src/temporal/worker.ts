import { setTimeout as wait } from "node:timers/promises";
import { Worker, type WorkflowBundleOption } from "@temporalio/worker";
import pRetry from "p-retry";
import type { Logger } from "pino";
import type { Activities } from "../../workflows/activities.ts";
import type { DispatchConfig } from "../config/config.ts";
import type { DeliveryEngine } from "../delivery/engine.ts";
import { createActivities } from "./activities.ts";
import { connectTemporal, type TemporalConnections } from "./connection/connection.ts";
import type { TemporalNames } from "./connection/names.ts";
import type { TemporalTarget } from "./connection/target.ts";
import { createDeleteExpired } from "./delete-expired.ts";
import {
  dispatchInput,
  ensureDispatchSchedule,
  ensureRetentionSchedule,
  triggerDispatch,
} from "./schedule.ts";
import { ensureSearchAttributes } from "./search-attributes.ts";
import { builtWorkflows } from "./workflow-bundle.ts";

/** Retry groups that one process works on at once; one that waits costs next to nothing. */
const MAX_RETRY_ACTIVITIES = 2_000;
/** Pumps at once: that of the latest run, and earlier ones that wait for their last responses. */
const MAX_PUMPS = 100;

/** A running delivery worker. */
export interface DeliveryWorker {
  /** Why it cannot work at the moment; empty when it can. */
  unready(): Promise<string[]>;
  /** Finishes what is in flight and gives back the rest; the engine's `stopping` must be aborted first. */
  stop(): Promise<void>;
}

/** What a worker is made of. */
export interface WorkerOptions {
  target: TemporalTarget;
  names: TemporalNames;
  engine: DeliveryEngine;
  dispatch: DispatchConfig;
  log: Logger;
  /** Made beforehand where many start in one process, as tests do. */
  workflowBundle?: WorkflowBundleOption;
}

/**
 * Starts the workers of the three task queues and keeps them going: when Temporal is away they wait for it, and when
 * their connection breaks for good they are made anew. Resolves once they first poll.
 */
export async function startDeliveryWorker(options: WorkerOptions): Promise<DeliveryWorker> {
  const { engine, log } = options;
  const activities = {
    ...createActivities(engine, dispatchInput(options.dispatch, options.names, false)),
    deleteExpired: createDeleteExpired(engine, options.dispatch),
  };
  const bundle = options.workflowBundle ?? builtWorkflows();
  let live: { connections: TemporalConnections; workers: Worker[] } | undefined;
  let firstStart: () => void = () => {};
  const started = new Promise<void>((resolve) => {
    firstStart = resolve;
  });

  async function once(): Promise<void> {
    const connections = await connectTemporal(options.target, log, engine.stopping);
    try {
      await pRetry(() => prepare(connections, options), { ...PATIENT, signal: engine.stopping });
      await engine.lease.start();
      const workers = await createWorkers(connections, options, activities, bundle);
      live = { connections, workers };
      const runs = workers.map((worker) => worker.run());
      if (options.dispatch.onPublish) await triggerDispatch(connections.client, options.names);
      firstStart();
      if (engine.stopping.aborted) shutDown(workers);
      // They share their connection, so when one fails the other ends too.
      for (const run of runs) run.catch(() => shutDown(workers));
      const ends = await Promise.allSettled(runs);
      for (const end of ends) if (end.status === "rejected") throw end.reason;
    } finally {
      live = undefined;
      await connections.close();
    }
  }

  const supervised = (async () => {
    while (!engine.stopping.aborted) {
      try {
        await once();
      } catch (error) {
        if (engine.stopping.aborted) return;
        log.error({ err: error }, "the delivery worker ended; it starts again");
        await wait(1_000);
      }
    }
  })();

  engine.stopping.addEventListener("abort", () => shutDown(live?.workers ?? []));
  await Promise.race([started, supervised]);
  return {
    async unready() {
      if (!live) return ["Temporal cannot be reached"];
      try {
        const { client } = live.connections;
        await client.connection.withDeadline(Date.now() + 2_000, () =>
          client.workflowService.getSystemInfo({}),
        );
        return [];
      } catch {
        return ["Temporal does not answer"];
      }
    },
    stop: () => supervised,
  };
}

function shutDown(workers: readonly Worker[]): void {
  for (const worker of workers) if (worker.getState() === "RUNNING") worker.shutdown();
}

const PATIENT = { retries: Number.POSITIVE_INFINITY, minTimeout: 500, maxTimeout: 5_000 };

async function prepare({ client, namespace }: TemporalConnections, options: WorkerOptions): Promise<void> {
  const searchable = await ensureSearchAttributes(client, namespace, options.log);
  await ensureDispatchSchedule(client, options.names, options.dispatch, searchable);
  await ensureRetentionSchedule(client, options.names, options.dispatch);
}

async function createWorkers(
  { native, namespace }: TemporalConnections,
  { names, engine }: WorkerOptions,
  activities: Activities,
  workflowBundle: WorkflowBundleOption,
): Promise<Worker[]> {
  const common = {
    connection: native,
    namespace,
    // Longer than any attempt: what is in flight ends by itself, what is not is given back.
    shutdownGraceTime: engine.timeoutMs + 10_000,
    // Only when the database is away too: what is in doubt then is repeated under the same id.
    shutdownForceTime: engine.timeoutMs + 20_000,
  };
  const { deliverPending, retryDeliveries, ...dispatch } = activities;
  return [
    await Worker.create({
      ...common,
      taskQueue: names.dispatchTaskQueue,
      workflowBundle,
      activities: dispatch,
    }),
    await Worker.create({
      ...common,
      taskQueue: engine.lease.taskQueue,
      activities: { deliverPending },
      maxConcurrentActivityTaskExecutions: MAX_PUMPS,
    }),
    await Worker.create({
      ...common,
      taskQueue: names.retryTaskQueue,
      activities: { retryDeliveries },
      maxConcurrentActivityTaskExecutions: MAX_RETRY_ACTIVITIES,
    }),
  ];
}
