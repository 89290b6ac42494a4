import { type Client, isGrpcServiceError } from "@temporalio/client";
import { type WorkerOptions as SdkOptions, Worker, type WorkflowBundleOption } from "@temporalio/worker";
import type { Logger } from "pino";
import type { Activities } from "../../../workflows/activities.ts";
import { ConfigError, type DispatchConfig } from "../../config/index.ts";
import { STATUS_CODES } from "../../contract/errors.ts";
import type { DeliveryEngine } from "../../delivery/index.ts";
import { LivenessProbe, takesWrites, untilAnswered } from "../../lib/pg/index.ts";
import { systemClock } from "../../lib/process/index.ts";
import {
  currentApiKey,
  ensureSearchAttributes,
  readSearchable,
  type TemporalNames,
  type TemporalTarget,
} from "../../temporal/index.ts";
import { connectTemporal, NO_TEMPORAL, whyUnavailable } from "../../temporal/native/index.ts";
import { ensureSchedules, triggerDispatch } from "../schedule.ts";
import { createActivities } from "./activities.ts";
import { unknownDeployment, whyNotCurrent } from "./deployment.ts";
import { createKeepAlive, type KeepAlive } from "./keep-alive.ts";

/** The maximum number of concurrent retry activities per process. A waiting activity uses almost no resources. */
const MAX_RETRY_ACTIVITIES = 2_000;
/** The delay before the workers are created again after an error, in milliseconds. */
const RESTART_DELAY_MS = 1_000;
/** The interval between calls of `repeat`, in milliseconds. */
const REPEAT_MS = 2_000;
/** The timeout for PostgreSQL's answer while the lease is not valid, in milliseconds. */
const DATABASE_TIMEOUT_MS = 5_000;
/** The timeout for Temporal's answer to a readiness check, in milliseconds. */
const READINESS_TIMEOUT_MS = 2_000;

const STARTING = "the delivery worker is starting";
const FAILED = "the delivery worker failed; restarting";
const STOPPING = "the delivery worker is stopping";
const NO_DATABASE =
  "the delivery worker does not poll Temporal, because the database does not respond or takes no writes";

/** Dependencies of a delivery worker. */
export interface WorkerOptions {
  target: TemporalTarget;
  names: TemporalNames;
  engine: DeliveryEngine;
  dispatch: DispatchConfig;
  log: Logger;
  /** The built workflows. */
  workflowBundle: WorkflowBundleOption;
  /** Creates the activities of other modules. @param heartbeats performs work with the heartbeats of its activity */
  activities: (
    heartbeats: KeepAlive["heartbeats"],
  ) => Omit<Activities, keyof ReturnType<typeof createActivities> | "readSearchable">;
  /** What other modules do at intervals with a client of Temporal, by its name in the log. */
  repeated: Readonly<Record<string, (client: Client) => Promise<void>>>;
}

/**
 * Starts the workers of the three task queues. While Temporal or the database is unavailable they wait and do not poll;
 * when their connection fails permanently they are recreated.
 *
 * @returns the worker, as `Delivery` of `src/app`. The engine's `stopping` must be aborted before it is stopped
 */
export function startDeliveryWorker(options: WorkerOptions) {
  const { target, names, engine, dispatch, log } = options;
  const { stopping, lease } = engine;
  const { deployment } = dispatch;
  /** The client of the workers that poll. */
  let live: Client | undefined;
  /** The reason why nothing polls, while `live` is undefined. */
  let waiting = STARTING;
  /** The reason why this process runs no workflows. Null once it could: a later version then replaces it. */
  let notCurrent = deployment ? unknownDeployment(deployment.name) : null;
  const { promise: started, resolve: firstStart } = Promise.withResolvers<void>();

  /** Works until the service stops, the database is lost or a worker fails. */
  async function once(): Promise<void> {
    await using ending = new AsyncDisposableStack();
    const { native, client } = await connectTemporal(target, stopping, ending);
    await client.withAbortSignal(stopping, () => prepare(client, options));
    waiting = NO_DATABASE;
    while (!(await untilAnswered(() => takesWrites(engine.db), { signal: stopping })))
      await systemClock.wait(RESTART_DELAY_MS, { signal: stopping });
    await lease.start();

    const end = new AbortController();
    const signal = AbortSignal.any([stopping, end.signal]);
    const workers: Worker[] = [];
    const running: Promise<void>[] = [];
    const shutDown = () => {
      live = undefined;
      for (const worker of workers) if (worker.getState() === "RUNNING") worker.shutdown();
    };
    signal.addEventListener("abort", shutDown, { once: true });
    // The connection cannot close while workers poll.
    ending.defer(async () => {
      end.abort();
      await Promise.allSettled(running);
    });
    for (const each of workerOptions(client, options, signal)) {
      const worker = await Worker.create({ connection: native, ...each });
      workers.push(worker);
      const run = worker.run();
      // The workers share the connection, so if one fails the others must stop too.
      run.catch(() => end.abort());
      running.push(run);
      if (signal.aborted) shutDown();
    }
    waiting = FAILED;
    if (!signal.aborted) live = client;

    const keepDoing = (what: string, work: () => Promise<boolean>) =>
      void running.push(client.withAbortSignal(signal, () => repeat(what, work, log, signal)));
    const probe = new LivenessProbe(engine.db);
    ending.defer(async () => probe.close());
    keepDoing("asking the database", async () => {
      // A lease also expires in a process that was paused or had no processor time.
      if (lease.isValid() || (await probe.ask(DATABASE_TIMEOUT_MS)) === "writes" || lease.isValid())
        return false;
      if (signal.aborted) return true;
      log.warn("the database does not respond or takes no writes; polling Temporal stops until it does");
      waiting = NO_DATABASE;
      end.abort();
      return true;
    });
    keepDoing("reading Temporal's API key", async () => {
      const apiKey = currentApiKey(target);
      if (apiKey) await native.setApiKey(apiKey);
      return !target.apiKeyFile;
    });
    keepDoing("triggering a dispatch run", async () => {
      if (dispatch.onPublish) await triggerDispatch(client, names);
      firstStart();
      return true;
    });
    keepDoing("reading the worker deployment", async () => {
      if (!deployment || notCurrent === null) return true;
      const reason = await whyNotCurrent(client, deployment, log);
      if (reason !== null && reason !== notCurrent) log.warn({ reason }, "this worker runs no workflows");
      notCurrent = reason;
      return reason === null;
    });
    for (const [what, work] of Object.entries(options.repeated))
      keepDoing(what, () => work(client).then(() => false));
    await Promise.all(running).catch((error) => {
      // Activities that wait for a lost database do not end in time.
      if (waiting !== NO_DATABASE) throw error;
    });
  }

  const supervised = (async () => {
    while (!stopping.aborted) {
      try {
        await once();
      } catch (error) {
        if (stopping.aborted) return;
        const reason = whyUnavailable(error) ?? FAILED;
        const { address } = target.connectionOptions;
        if (reason === FAILED) log.error({ err: error }, FAILED);
        else if (reason !== waiting)
          log.warn(
            { reason, address, err: reason === NO_TEMPORAL ? error : undefined },
            "waiting for Temporal",
          );
        waiting = reason;
        await systemClock.wait(RESTART_DELAY_MS, { signal: stopping });
      }
    }
  })();

  return {
    ready: Promise.race([started, supervised]),
    async unready(): Promise<string[]> {
      if (stopping.aborted) return [STOPPING];
      if (!live) return [waiting];
      const { connection, workflowService } = live;
      try {
        await connection.withDeadline(Date.now() + READINESS_TIMEOUT_MS, () =>
          workflowService.getSystemInfo({}),
        );
      } catch (error) {
        return [whyUnavailable(error) ?? NO_TEMPORAL];
      }
      // A rollout that counted this worker as ready would stop the workers of the current version, and nothing would run.
      return notCurrent === null ? [] : [notCurrent];
    },
    stop: () => supervised,
  };
}

/**
 * Calls a function every REPEAT_MS until it returns true or the signal aborts. Logs a failure unless the call before failed in
 * the same way. Never rejects.
 *
 * @param what names the work in the log: `${what} failed; retrying`
 */
async function repeat(what: string, work: () => Promise<boolean>, log: Logger, signal: AbortSignal) {
  let failure: string | undefined;
  while (!signal.aborted) {
    try {
      if (await work()) return;
      failure = undefined;
    } catch (err) {
      if (signal.aborted) return;
      if (String(err) !== failure) log.warn({ err }, `${what} failed; retrying`);
      failure = String(err);
    }
    await systemClock.wait(REPEAT_MS, { signal, ref: false });
  }
}

/** Prepares the namespace. @throws ConfigError that names the namespace if it does not exist */
async function prepare(client: Client, { names, dispatch, log, target }: WorkerOptions): Promise<void> {
  const { namespace } = client.options;
  await client.workflowService.describeNamespace({ namespace }).catch((error) => {
    if (!isGrpcServiceError(error) || error.code !== STATUS_CODES.NOT_FOUND) throw error;
    throw new ConfigError(
      `Temporal has no namespace "${namespace}" (TEMPORAL_NAMESPACE); create it: temporal operator namespace create --namespace ${namespace}`,
    );
  });
  await ensureSearchAttributes(client, namespace, log, target.connectionOptions.address);
  await ensureSchedules(client, names, dispatch);
}

/** The options of the workers of the three task queues. @param stopping aborts when the workers end */
function workerOptions(client: Client, options: WorkerOptions, stopping: AbortSignal): SdkOptions[] {
  const { names, dispatch, workflowBundle } = options;
  const { deployment } = dispatch;
  const engine = { ...options.engine, stopping };
  const alive = createKeepAlive(engine, dispatch.heartbeatTimeoutMs);
  const { deliverPending, retryDeliveries, ...ofRuns } = createActivities(engine, dispatch, alive);
  const common = {
    namespace: options.target.namespace,
    // Longer than any attempt: requests in flight complete, and queued deliveries are released.
    shutdownGraceTime: engine.delivery.timeoutMs + 10_000,
    // Reached only if the database is unavailable too. Unrecorded attempts are then repeated under the same id.
    shutdownForceTime: engine.delivery.timeoutMs + 20_000,
  };
  return [
    {
      ...common,
      taskQueue: names.dispatchTaskQueue,
      workflowBundle,
      activities: {
        ...ofRuns,
        ...options.activities(alive.heartbeats),
        readSearchable: () => readSearchable(client),
      } satisfies Omit<Activities, "deliverPending" | "retryDeliveries">,
      // Open runs continue on the current version: a worker is replaced sooner than its runs end. Activities need no version:
      // workers of all versions execute the activities of every run.
      ...(deployment && {
        workerDeploymentOptions: {
          useWorkerVersioning: true,
          version: { deploymentName: deployment.name, buildId: deployment.buildId },
          defaultVersioningBehavior: "AUTO_UPGRADE",
        },
      }),
    },
    // The SDK's limit of 100 suffices for the pump of the latest run, and earlier ones that wait for their last responses.
    { ...common, taskQueue: engine.lease.taskQueue, activities: { deliverPending } },
    {
      ...common,
      taskQueue: names.retryTaskQueue,
      activities: { retryDeliveries },
      maxConcurrentActivityTaskExecutions: MAX_RETRY_ACTIVITIES,
    },
  ];
}
