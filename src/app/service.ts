import type { MetricsBuffer } from "@temporalio/worker";
import packageJson from "../../package.json" with { type: "json" };
import { assertFreePort, findSettingsPage, startApi } from "../api/index.ts";
import { type Config, deliversInItself, exportsMetrics } from "../config/index.ts";
import { createRequestTrial, createSigner, createTargetRules } from "../delivery/request/index.ts";
import { builtWorkflows, createDispatchTrigger, type DispatchTrigger } from "../dispatch/index.ts";
import type { WorkerOptions } from "../dispatch/worker/index.ts";
import { type Announcer, createAnnouncer } from "../events/index.ts";
import { FilterThreads } from "../filters/index.ts";
import { createAddressGuard } from "../lib/egress/index.ts";
import {
  budgetWarning,
  checkPooler,
  openDatabases,
  readConnectionBudget,
  readReplica,
  untilAnswered,
} from "../lib/pg/index.ts";
import {
  createLogger,
  type Progress,
  systemClock,
  watchBlockedThread,
  watchFiles,
} from "../lib/process/index.ts";
import {
  createApiInstruments,
  createDeliveryInstruments,
  createOperationDuration,
  drainTemporalMetrics,
  exportMetrics,
  observeCertificate,
  observePool,
  observeReplicaLag,
  startTracing,
} from "../metrics/index.ts";
import { MIGRATION_BLOCKED, migrate } from "../schema/index.ts";
import { readBacklog } from "../stats/index.ts";
import { type TemporalNames, temporalNames, temporalTarget, workflowLinks } from "../temporal/index.ts";
import { createSecretBox } from "../webhooks/index.ts";
import type { Delivery } from "./delivery.ts";
import { type DeliveryProcesses, deliveryEnvironment, startDeliveryProcesses } from "./delivery-processes.ts";
import { startEmbeddedParts } from "./embedded-parts.ts";
import { ensureFirstAdmin } from "./first-admin.ts";
import { Instance } from "./instance.ts";
import { findSecretKey } from "./instance-secrets.ts";
import { checkSecretKey, keepSealed } from "./secret-keys.ts";

/** A running service. */
export interface Service {
  /** The URL of REST, Connect and gRPC-Web. */
  url: string;
  httpPort: number;
  /** Null if gRPC shares the HTTP port, which requires TLS. */
  grpcPort: number | null;
  databaseUrl: string;
  temporalUiUrl: string | undefined;
  /** The URL for Prometheus. Undefined without METRICS_PORT. */
  metricsUrl: string | undefined;
  /** Whether the settings page is served at `url`. */
  hasPage: boolean;
  /** The file with the first administrator's key, if one was created. */
  adminKeyFile: string | undefined;
  /** Rejects if the service must be stopped, because the data requires what this release does not know. */
  outdated: Promise<never>;
  /** Stops all parts in order: requests in flight first, the embedded database last. Rejects if one cannot be stopped. */
  stop(): Promise<void>;
}

/** Options for tests and the demo, in addition to the configuration. */
export interface ServiceOverrides {
  progress?: Progress;
  names?: TemporalNames;
  workflowBundle?: NonNullable<WorkerOptions["workflowBundle"]>;
  environment?: NodeJS.ProcessEnv;
  /** The metrics of Temporal's SDK in this process. */
  temporalMetrics?: MetricsBuffer;
  /** The features that this process knows. Defaults to those of this release. */
  features?: readonly string[];
  /** Aborted while the service starts: what has started is stopped, and the start rejects. Later, it ends SHUTDOWN_DELAY. */
  giveUp?: AbortSignal;
}

/** Logged at startup, because the variable is usually left over from a test. */
const UNVERIFIED_TLS =
  "NODE_TLS_REJECT_UNAUTHORIZED=0 does not apply to deliveries: certificates of receivers are verified. It applies to other TLS connections of this process, such as the database's. Unset it, and set NODE_EXTRA_CA_CERTS for a private certificate authority";

/**
 * The time after the attempt timeout at which a delivery process is killed, in milliseconds. It stops by itself about
 * 20 s after the longest attempt.
 */
const STOP_MARGIN_MS = 30_000;

/** Starts the configured roles on external or embedded servers. */
export async function startService(config: Config, overrides: ServiceOverrides = {}): Promise<Service> {
  const { progress = () => {}, names = temporalNames(), environment = process.env } = overrides;
  const log = createLogger(config.logLevel, { role: config.role, version: packageJson.version });
  const stopping = new AbortController();
  overrides.giveUp?.addEventListener("abort", () => stopping.abort(), { once: true });
  if (environment.NODE_TLS_REJECT_UNAUTHORIZED === "0") log.warn(UNVERIFIED_TLS);
  const started = new AsyncDisposableStack();
  const outdated = Promise.withResolvers<never>();
  // Who waits for it learns of it.
  outdated.promise.catch(() => {});
  let isPrepared = false;
  let left: Promise<void> | undefined;
  /** Set once the API listens: it serves on for SHUTDOWN_DELAY, and `/readyz` answers 503. */
  let leave = async () => {};
  async function stop(): Promise<void> {
    stopping.abort();
    left = leave();
    await started.disposeAsync();
  }

  try {
    /** Delivery processes, once they run. */
    let processes: DeliveryProcesses | undefined;
    let delivery: Delivery | undefined;
    const thread = watchBlockedThread(log);
    const { role, dataDir, host, tls, adminKey } = config;
    const exported = { metrics: config.metrics, host };
    const metrics = await exportMetrics(exported, log, async () => (await processes?.snapshots()) ?? []);
    started.defer(metrics.close);
    const { meter } = metrics;
    const tracing = await startTracing({ ...config.traces, process: "main", log });
    started.defer(tracing.close);
    let certificate = tls?.cert ?? "";
    if (tls) observeCertificate(meter, () => certificate);
    if (overrides.temporalMetrics) {
      const endDraining = drainTemporalMetrics(meter, overrides.temporalMetrics);
      started.defer(async () => endDraining());
    }
    const page = role === "worker" ? undefined : findSettingsPage();
    if (role !== "worker" && page === undefined)
      log.warn("the settings page is not built; run `npm run build`");
    // A delivery process without them would be restarted again and again.
    if (role !== "api" && !overrides.workflowBundle) builtWorkflows();
    // The embedded servers take some seconds to start.
    await assertFreePort(host, config.httpPort, "HTTP_PORT");
    if (role !== "worker" && !tls) await assertFreePort(host, config.grpcPort, "GRPC_PORT");
    const embedded = await startEmbeddedParts(
      { role, dataDir, database: config.database, temporal: config.temporal },
      environment,
      progress,
      stopping.signal,
    );
    started.defer(embedded.stop);
    stopping.signal.throwIfAborted();

    const databaseUrl = config.database.url ?? (embedded.databaseUrl as string);
    const { poolSize, preparedStatements, readUrl } = config.database;
    const databases = openDatabases(databaseUrl, {
      directUrl: config.database.directUrl,
      poolSize,
      preparedStatements,
      delivers: role !== "api" && deliversInItself(config),
      operationDuration: exportsMetrics(exported) ? createOperationDuration(meter) : undefined,
    });
    started.defer(databases.close);
    const { db, directDb, directUrl } = databases;
    observePool(meter, db);
    const reads =
      readUrl === undefined || role === "worker"
        ? undefined
        : readReplica(db, readUrl, { poolSize, preparedStatements, log });
    if (reads) {
      observeReplicaLag(meter, reads.lagMs);
      started.defer(reads.close);
    }
    const secretKey = await findSecretKey(config.secretKey, dataDir);
    const secrets = createSecretBox(secretKey, config.previousSecretKeys);
    const target = temporalTarget(environment, embedded.temporalAddress);
    let dispatch: DispatchTrigger | undefined;
    const knowsTemporal = config.temporal.external || embedded.temporalAddress !== undefined;
    if (knowsTemporal && role !== "worker") {
      dispatch = createDispatchTrigger(target, names, log);
      started.defer(dispatch.close);
    }
    let announcer: Announcer | undefined;
    if (config.dispatch.onPublish && role !== "worker") {
      announcer = createAnnouncer(databaseUrl, log);
      started.defer(announcer.close);
    }
    const guard = createAddressGuard(config.delivery.allowedNetworks, {
      allowedPorts: config.delivery.allowedPorts,
    });
    const trial = createRequestTrial({
      db,
      secrets,
      guard,
      timeoutMs: config.delivery.timeoutMs,
      proxy: config.delivery.proxy,
      log,
    });
    started.defer(trial.close);
    const filters = new FilterThreads(config.delivery.filterTimeoutMs, log);
    started.defer(() => filters.close());
    const instance = new Instance({
      db,
      log,
      release: packageJson.version,
      role,
      stopping: stopping.signal,
      onOutdated: outdated.reject,
      ...(overrides.features ? { features: overrides.features } : {}),
    });
    started.defer(() => instance.close());
    const readiness = [
      async () => (stopping.signal.aborted ? ["the service is stopping"] : []),
      async () => (isPrepared ? [] : ["the service is starting and waits for its database"]),
    ];
    if (role !== "api")
      readiness.push(async () => delivery?.unready() ?? ["the delivery worker is starting"]);
    // Before the database is available, so that probes see a process that is alive and why it is not ready.
    const api = await startApi(
      {
        db,
        ...(reads ? { reads } : {}),
        secrets,
        isPrepared: () => isPrepared,
        admit: () => instance.admit(),
        sign: createSigner(secrets),
        log,
        works: thread.works,
        instruments: createApiInstruments(meter),
        tracer: tracing.tracer,
        limits: config.limits,
        deliveryTimeoutMs: config.delivery.timeoutMs,
        retentionDays: config.dispatch.retentionDays,
        searchIndex: config.searchIndex,
        ...(dispatch ? { dispatchNow: dispatch.trigger, findActivity: dispatch.findActivity } : {}),
        ...(announcer ? { onQueued: announcer.announce } : {}),
        workflowUrl: workflowLinks(config.temporal.uiUrl ?? embedded.temporalUiUrl, target.namespace),
        filters,
        targets: createTargetRules(guard),
        tryRequest: trial.send,
        readiness: async () => (await Promise.all(readiness.map((check) => check()))).flat(),
      },
      {
        host,
        httpPort: config.httpPort,
        grpcPort: config.grpcPort,
        tls,
        accessLog: config.accessLog,
        services: role !== "worker",
        page,
      },
    );
    if (tls) {
      const { cert, key, certFile, keyFile } = tls;
      const stopWatching = watchFiles(
        [certFile, keyFile],
        [cert, key],
        ([newCert = "", newKey = ""]) => {
          api.setCertificate({ cert: newCert, key: newKey });
          certificate = newCert;
          log.info({ certFile }, "the TLS certificate was reloaded");
        },
        (err) =>
          log.warn(
            { err, certFile, keyFile },
            "reloading the TLS certificate failed; the old one stays in use",
          ),
      );
      started.defer(async () => stopWatching());
    }
    leave = async () => {
      const { giveUp } = overrides;
      if (!isPrepared || role === "worker" || giveUp?.aborted) return;
      api.turnAway();
      await systemClock.wait(config.shutdownDelayMs, giveUp && { signal: giveUp });
    };
    started.defer(async () => {
      await left;
      await api.stop();
    });

    const adminKeyFile = await untilAnswered(
      async () => {
        await checkPooler(databaseUrl, directUrl, preparedStatements);
        await migrate(directUrl, {
          retentionDays: config.dispatch.retentionDays,
          signal: stopping.signal,
          onBlocked: (err) => log.warn({ err }, MIGRATION_BLOCKED),
        });
        await checkSecretKey(db, secrets);
        // Behind a pooler, the pooler decides how many connections PostgreSQL gets.
        if (directDb === db) {
          const pools = 1 + (deliversInItself(config) || role === "api" ? 0 : config.delivery.processes);
          const budget = budgetWarning(await readConnectionBudget(db, poolSize), poolSize, pools);
          if (budget) log.warn(budget);
        }
        return ensureFirstAdmin(db, { adminKey, dataDir, database: config.database });
      },
      {
        signal: stopping.signal,
        onFirstFault: (err) => log.warn({ err }, "waiting for the database"),
      },
    );
    await instance.start();
    isPrepared = true;
    started.defer(metrics.watchBacklog(directUrl, readBacklog));
    started.defer(keepSealed(db, secrets, { log, repeat: config.previousSecretKeys.length > 0 }));

    if (config.noticeMail && role !== "api") {
      const { startNoticeMails } = await import("../notices/notice-mails.ts");
      started.defer(startNoticeMails(db, config.noticeMail, log));
    }

    stopping.signal.throwIfAborted();
    if (role !== "api") {
      progress("starting the delivery worker");
      if (deliversInItself(config)) {
        // Loaded on demand: Temporal's native code takes about 40 MiB.
        const { startDelivery } = await import("./delivery.ts");
        delivery = startDelivery({
          db,
          directDb,
          directUrl,
          admit: () => instance.admit(),
          secrets,
          target,
          names,
          delivery: config.delivery,
          dispatch: config.dispatch,
          stopping: stopping.signal,
          log,
          works: thread.works,
          instruments: createDeliveryInstruments(meter),
          tracing,
          reservedFiles: role === "all" ? config.limits.maxConnections : 0,
          ...(overrides.workflowBundle ? { workflowBundle: overrides.workflowBundle } : {}),
        });
      } else {
        processes = startDeliveryProcesses({
          count: config.delivery.processes,
          environment: deliveryEnvironment(environment, {
            databaseUrl,
            secretKey,
            temporalAddress: embedded.temporalAddress,
          }),
          stopMs: config.delivery.timeoutMs + STOP_MARGIN_MS,
          stopping: stopping.signal,
          log,
        });
        delivery = processes;
      }
      started.defer(delivery.stop);
      await delivery.ready;
      stopping.signal.throwIfAborted();
    }

    thread.start();
    started.defer(async () => thread.stop());
    const temporalUiUrl = config.temporal.uiUrl ?? embedded.temporalUiUrl;
    return {
      url: api.url,
      httpPort: api.httpPort,
      grpcPort: api.grpcPort,
      databaseUrl,
      temporalUiUrl,
      metricsUrl: metrics.url,
      hasPage: page !== undefined,
      adminKeyFile,
      outdated: outdated.promise,
      stop,
    };
  } catch (error) {
    await stop().catch((stopError) => {
      throw new SuppressedError(stopError, error);
    });
    throw error;
  }
}
