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

/** The maximum number of concurrent retry activities per process. A waiting activity uses almost no resources. */
const MAX_RETRY_ACTIVITIES = 2_000;
/**
 * The maximum number of concurrent pumps: that of the latest run, and earlier ones that wait for their last
 * responses.
 */
const MAX_PUMPS = 100;

/** A running delivery worker. */
export interface DeliveryWorker {
  /** The reasons why it cannot work; empty if ready. */
  unready(): Promise<string[]>;
  /** Completes requests in flight and releases other claims. The engine's `stopping` must be aborted first. */
  stop(): Promise<void>;
}

/** Dependencies of a delivery worker. */
export interface WorkerOptions {
  target: TemporalTarget;
  names: TemporalNames;
  engine: DeliveryEngine;
  dispatch: DispatchConfig;
  log: Logger;
  /** A prebuilt bundle, shared by tests that start several workers in one process. */
  workflowBundle?: WorkflowBundleOption;
}

/**
 * Starts the workers of the three task queues. While Temporal is unavailable they wait; when their connection fails
 * permanently they are recreated. Resolves when they first poll.
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
      await pRetry(() => prepare(connections, options), { ...RETRY_FOREVER, signal: engine.stopping });
      await engine.lease.start();
      const workers = await createWorkers(connections, options, activities, bundle);
      live = { connections, workers };
      const runs = workers.map((worker) => worker.run());
      if (options.dispatch.onPublish) await triggerDispatch(connections.client, options.names);
      firstStart();
      if (engine.stopping.aborted) shutDown(workers);
      // The workers share a connection, so if one fails the other must stop too.
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
        log.error({ err: error }, "the delivery worker failed; restarting");
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
        return ["Temporal does not respond"];
      }
    },
    stop: () => supervised,
  };
}

function shutDown(workers: readonly Worker[]): void {
  for (const worker of workers) if (worker.getState() === "RUNNING") worker.shutdown();
}

const RETRY_FOREVER = { retries: Number.POSITIVE_INFINITY, minTimeout: 500, maxTimeout: 5_000 };

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
    // Longer than any attempt: requests in flight complete, and queued deliveries are released.
    shutdownGraceTime: engine.timeoutMs + 10_000,
    // Reached only if the database is unavailable too. Unrecorded attempts are then repeated under the same id.
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
