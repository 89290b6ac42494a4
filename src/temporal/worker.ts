import { setTimeout as wait } from "node:timers/promises";
import { type Client, isGrpcServiceError } from "@temporalio/client";
import { Worker, type WorkflowBundleOption } from "@temporalio/worker";
import pRetry from "p-retry";
import type { Logger } from "pino";
import type { Activities } from "../../workflows/activities.ts";
import type { DispatchConfig } from "../config/config.ts";
import { STATUS_CODES } from "../contract/errors.ts";
import { LivenessProbe } from "../db/connections/liveness.ts";
import { untilAnswered } from "../db/faults.ts";
import type { DeliveryEngine } from "../delivery/engine.ts";
import { createActivities } from "./activities.ts";
import {
  connectTemporal,
  NO_TEMPORAL,
  type TemporalConnections,
  whyRefused,
} from "./connection/connection.ts";
import type { TemporalNames } from "./connection/names.ts";
import type { TemporalTarget } from "./connection/target.ts";
import { createDeleteExpired } from "./delete-expired.ts";
import { KeepAlive } from "./keep-alive.ts";
import { createReplayActivities } from "./replays/run-replay.ts";
import { startReplays } from "./replays/start-replays.ts";
import { ensureCurrentVersion, versioningOptions, whyNotCurrent } from "./setup/deployment.ts";
import {
  dispatchInput,
  ensureDispatchSchedule,
  ensureRetentionSchedule,
  triggerDispatch,
} from "./setup/schedule.ts";
import { ensureSearchAttributes, readSearchable } from "./setup/search-attributes.ts";

/** The maximum number of concurrent retry activities per process. A waiting activity uses almost no resources. */
const MAX_RETRY_ACTIVITIES = 2_000;
/**
 * The maximum number of concurrent pumps: that of the latest run, and earlier ones that wait for their last
 * responses.
 */
const MAX_PUMPS = 100;

/** A delivery worker. */
export interface DeliveryWorker {
  /** Resolves when the workers first poll, or when they were stopped before. */
  ready: Promise<void>;
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
  /** The built workflows. */
  workflowBundle: WorkflowBundleOption;
}

/** The delay before the workers are created again after an error, in milliseconds. */
const RESTART_DELAY_MS = 1_000;
/** The interval between looks at the lease, in milliseconds. */
const LEASE_CHECK_MS = 1_000;
/** The timeout for PostgreSQL's answer while the lease is not valid, in milliseconds. */
const DATABASE_TIMEOUT_MS = 5_000;

/**
 * Starts the workers of the three task queues. While Temporal or the database is unavailable they wait and do not poll;
 * when their connection fails permanently they are recreated.
 */
export function startDeliveryWorker(options: WorkerOptions): DeliveryWorker {
  const { engine, log } = options;
  const { onPublish, intervalMs } = options.dispatch;
  const timing = {
    ...dispatchInput(options.dispatch, options.names),
    lingerMs: onPublish ? intervalMs : 0,
  };
  let live: { connections: TemporalConnections; workers: Worker[] } | undefined;
  /** The reason why nothing polls, while `live` is undefined. */
  let waiting = NO_TEMPORAL;
  /** Whether this process may run workflows, or once could: a later version then replaces it. */
  let wasCurrent = options.dispatch.deployment === undefined;
  const { promise: started, resolve: firstStart } = Promise.withResolvers<void>();

  /** Works until the service stops, the database is lost or a worker fails. */
  async function once(): Promise<void> {
    waiting = NO_TEMPORAL;
    const tell = (reason: string) => {
      waiting = reason;
    };
    const connections = await connectTemporal(options.target, log, engine.stopping, tell);
    const ended = new AbortController();
    try {
      await untilPrepared(connections, options, tell);
      waiting = NO_DATABASE;
      await untilAnswered(() => engine.db.raw("select 1"), { signal: engine.stopping });
      await engine.lease.start();
      const databaseLost = new AbortController();
      const stopping = AbortSignal.any([engine.stopping, databaseLost.signal]);
      const alive = new KeepAlive(engine.db, engine.log, options.dispatch.heartbeatTimeoutMs);
      const activities = {
        ...createActivities({ ...engine, stopping }, timing, alive),
        deleteExpired: createDeleteExpired(engine, options.dispatch, alive),
        readSearchable: () => readSearchable(connections.client),
        ...createReplayActivities({ ...engine, stopping }, options.dispatch, alive),
      };
      const workers = await createWorkers(connections, options, activities);
      live = { connections, workers };
      const runs = workers.map((worker) => worker.run());
      // Until the runs end, nothing may throw here: the connection cannot close while workers poll.
      // The workers share the connection, so if one fails the others must stop too.
      for (const run of runs) run.catch(() => shutDown(workers));
      const stop = () => {
        live = undefined;
        waiting = databaseLost.signal.aborted ? NO_DATABASE : STOPPING;
        shutDown(workers);
      };
      if (stopping.aborted) stop();
      stopping.addEventListener("abort", stop, { once: true });
      const { client, namespace } = connections;
      const working = AbortSignal.any([stopping, ended.signal]);
      const versioned = ensureCurrentVersion(client, namespace, options.dispatch.deployment, log, working);
      void untilTriggered(client, options, working).then(firstStart, () => {});
      void startReplays(
        { client, db: engine.db, log, names: options.names },
        options.dispatch.heartbeatTimeoutMs,
        working,
      );
      const watching = untilDatabaseLost(engine, AbortSignal.any([engine.stopping, ended.signal])).then(
        (lost) => {
          if (!lost) return;
          log.warn("the database does not respond; polling Temporal stops until it does");
          databaseLost.abort();
        },
      );
      const ends = await Promise.allSettled(runs);
      ended.abort();
      await Promise.all([watching, versioned]);
      stopping.removeEventListener("abort", stop);
      // Activities that wait for the lost database do not end in time.
      if (databaseLost.signal.aborted) return;
      for (const end of ends) if (end.status === "rejected") throw end.reason;
    } finally {
      live = undefined;
      ended.abort();
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
        await wait(RESTART_DELAY_MS);
      }
    }
  })();

  return {
    ready: Promise.race([started, supervised]),
    async unready() {
      if (!live) return [waiting];
      try {
        const { client, namespace } = live.connections;
        const { deployment } = options.dispatch;
        return await client.connection.withDeadline(Date.now() + 2_000, async () => {
          await client.workflowService.getSystemInfo({});
          if (wasCurrent || !deployment) return [];
          // A rollout that counted this worker as ready would stop those of the current version, and nothing would run.
          const reason = await whyNotCurrent(client, namespace, deployment);
          wasCurrent = reason === null;
          return reason === null ? [] : [reason];
        });
      } catch (error) {
        return [whyRefused(error) ?? "Temporal does not respond"];
      }
    },
    stop: () => supervised,
  };
}

const STOPPING = "the delivery worker is stopping";
const NO_DATABASE = "the delivery worker does not poll Temporal, because the database does not respond";

/** Resolves with true once the lease has expired and PostgreSQL executes nothing, or with false when the signal aborts. */
async function untilDatabaseLost({ db, lease }: DeliveryEngine, signal: AbortSignal): Promise<boolean> {
  const probe = new LivenessProbe(db);
  try {
    while (!signal.aborted) {
      await wait(LEASE_CHECK_MS, undefined, { signal, ref: false }).catch(() => {});
      // A lease also expires in a process that was paused or had no processor time.
      if (signal.aborted || lease.isValid()) continue;
      if (!(await probe.works(DATABASE_TIMEOUT_MS)) && !lease.isValid()) return !signal.aborted;
    }
    return false;
  } finally {
    probe.close();
  }
}

function shutDown(workers: readonly Worker[]): void {
  for (const worker of workers) if (worker.getState() === "RUNNING") worker.shutdown();
}

const RETRY_FOREVER = { retries: Number.POSITIVE_INFINITY, minTimeout: 500, maxTimeout: 5_000 };

/**
 * Prepares the namespace. Retries until that succeeds.
 *
 * @param tell called with the reason of each failure
 */
function untilPrepared(
  connections: TemporalConnections,
  options: WorkerOptions,
  tell: (reason: string) => void,
): Promise<void> {
  let told: string | undefined;
  return pRetry(() => prepare(connections, options), {
    ...RETRY_FOREVER,
    signal: options.engine.stopping,
    onFailedAttempt: ({ error }) => {
      const reason = isGrpcServiceError(error)
        ? `Temporal: ${error.details || error.message}`
        : error.message;
      tell(reason);
      if (reason !== told) options.log.warn({ reason }, "waiting for Temporal");
      told = reason;
    },
  });
}

/**
 * Triggers a run with DISPATCH_ON_PUBLISH, so that pending deliveries do not wait for the next interval. Retries until
 * Temporal accepts it or the signal aborts.
 *
 * @throws if the signal aborts
 */
async function untilTriggered(
  client: Client,
  { names, dispatch, log }: WorkerOptions,
  signal: AbortSignal,
): Promise<void> {
  if (!dispatch.onPublish) return;
  await pRetry(() => triggerDispatch(client, names), {
    ...RETRY_FOREVER,
    signal,
    onFailedAttempt: ({ error, attemptNumber }) => {
      if (attemptNumber === 1) log.warn({ err: error }, "triggering a dispatch run failed; retrying");
    },
  });
}

/** @throws Error that names the namespace if it does not exist */
async function assertNamespace({ client, namespace }: TemporalConnections): Promise<void> {
  try {
    await client.workflowService.describeNamespace({ namespace });
  } catch (error) {
    if (!isGrpcServiceError(error) || error.code !== STATUS_CODES.NOT_FOUND) throw error;
    throw new Error(
      `Temporal has no namespace "${namespace}" (TEMPORAL_NAMESPACE); create it: temporal operator namespace create --namespace ${namespace}`,
    );
  }
}

async function prepare(connections: TemporalConnections, options: WorkerOptions): Promise<void> {
  await assertNamespace(connections);
  const { client, namespace } = connections;
  const { address } = options.target.connectionOptions;
  await ensureSearchAttributes(client, namespace, options.log, address);
  await ensureDispatchSchedule(client, options.names, options.dispatch);
  await ensureRetentionSchedule(client, options.names, options.dispatch);
}

async function createWorkers(
  { native, namespace }: TemporalConnections,
  { names, engine, dispatch: { deployment }, workflowBundle }: WorkerOptions,
  activities: Activities,
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
  const options = [
    {
      taskQueue: names.dispatchTaskQueue,
      workflowBundle,
      activities: dispatch,
      ...versioningOptions(deployment),
    },
    {
      taskQueue: engine.lease.taskQueue,
      activities: { deliverPending },
      maxConcurrentActivityTaskExecutions: MAX_PUMPS,
    },
    {
      taskQueue: names.retryTaskQueue,
      activities: { retryDeliveries },
      maxConcurrentActivityTaskExecutions: MAX_RETRY_ACTIVITIES,
    },
  ];
  const workers: Worker[] = [];
  try {
    for (const each of options) workers.push(await Worker.create({ ...common, ...each }));
    return workers;
  } catch (error) {
    // The SDK releases a worker, and allows its connection to be closed, only at the end of its run.
    const runs = workers.map((worker) => worker.run());
    shutDown(workers);
    await Promise.allSettled(runs);
    throw error;
  }
}
