import type { MetricsBuffer } from "@temporalio/worker";
import packageJson from "../../package.json" with { type: "json" };
import { assertFreePort, findSettingsPage } from "../api/index.ts";
import { type Config, exportsMetrics } from "../config/index.ts";
import { builtWorkflows } from "../dispatch/index.ts";
import type { WorkerOptions } from "../dispatch/worker/index.ts";
import { registerConfiguredTypes, watchEventTypes } from "../event-types/index.ts";
import { readIncidentCounts } from "../incidents/index.ts";
import { untilAnswered } from "../lib/pg/index.ts";
import { createLogger, type Progress, systemClock, watchBlockedThread } from "../lib/process/index.ts";
import { drainTemporalMetrics, exportMetrics, startTracing } from "../metrics/index.ts";
import { readBacklog } from "../queue/index.ts";
import { type TemporalNames, temporalNames, temporalTarget } from "../temporal/index.ts";
import { deliver } from "./delivering.ts";
import { startEmbeddedParts } from "./embedded-parts.ts";
import { Instance } from "./instance.ts";
import { keepSealed } from "./secret-keys.ts";
import { serve } from "./serving.ts";
import { openStores, prepareDatabase, type Stores } from "./stores.ts";

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

/** Logged at startup, because the service then cannot check which addresses deliveries reach. */
const UNCHECKED_NAMES =
  "DELIVERY_PROXY_DNS=remote: the outbound proxy looks up host names, so the service checks literal addresses only. Let the proxy refuse private networks";

/** Starts the configured roles on external or embedded servers. */
export async function startService(config: Config, overrides: ServiceOverrides = {}): Promise<Service> {
  const { progress = () => {}, names = temporalNames(), environment = process.env } = overrides;
  const log = createLogger(config.logLevel, { role: config.role, version: packageJson.version });
  const stopping = new AbortController();
  overrides.giveUp?.addEventListener("abort", () => stopping.abort(), { once: true });
  if (environment.NODE_TLS_REJECT_UNAUTHORIZED === "0") log.warn(UNVERIFIED_TLS);
  if (config.delivery.proxyDns === "remote") log.warn(UNCHECKED_NAMES);
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

  /** Registers EVENT_TYPES, and reads the registered event types before this process serves or delivers. */
  async function knowEventTypes({ db }: Pick<Stores, "db">): Promise<void> {
    const { eventTypesPath: path, builtInEventTypes: builtIn } = config;
    if (path !== undefined) await registerConfiguredTypes(db, path, { log, stopping: stopping.signal });
    const types = watchEventTypes(db, log, { builtIn, ahead: config.role !== "worker" });
    started.defer(async () => types.close());
    await untilAnswered(() => types.refresh(), { signal: stopping.signal });
  }

  try {
    // Observe.
    let delivery: Awaited<ReturnType<typeof deliver>> | undefined;
    const thread = watchBlockedThread(log);
    const { role, dataDir, host } = config;
    const exported = { metrics: config.metrics, host };
    const metrics = await exportMetrics(exported, log, async () => (await delivery?.snapshots?.()) ?? []);
    started.defer(metrics.close);
    const { meter } = metrics;
    const tracing = await startTracing({ ...config.traces, process: "main", log });
    started.defer(tracing.close);
    if (overrides.temporalMetrics) {
      const endDraining = drainTemporalMetrics(meter, overrides.temporalMetrics);
      started.defer(async () => endDraining());
    }

    // Check what needs no server, then start the embedded ones, which take some seconds.
    const page = role === "worker" ? undefined : findSettingsPage();
    if (role !== "worker" && page === undefined)
      log.warn("the settings page is not built; run `npm run build`");
    // A delivery process without them would be restarted again and again.
    if (role !== "api" && !overrides.workflowBundle) builtWorkflows();
    await assertFreePort(host, config.httpPort, "HTTP_PORT");
    if (role !== "worker" && !config.tls) await assertFreePort(host, config.grpcPort, "GRPC_PORT");
    const embedded = await startEmbeddedParts(
      { role, dataDir, database: config.database, temporal: config.temporal },
      environment,
      progress,
      stopping.signal,
    );
    started.defer(embedded.stop);
    stopping.signal.throwIfAborted();

    // Open the database, and serve before it is available.
    const databaseUrl = config.database.url ?? (embedded.databaseUrl as string);
    const measures = exportsMetrics(exported);
    const stores = await openStores(config, started, { databaseUrl, meter, measures, log });
    const { db, directDb, directUrl, secrets, secretKey } = stores;
    const target = temporalTarget(environment, embedded.temporalAddress);
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
    const readiness = async () => [
      ...(stopping.signal.aborted ? ["the service is stopping"] : []),
      ...(isPrepared ? [] : ["the service is starting and waits for its database"]),
      ...(role === "api" ? [] : ((await delivery?.unready()) ?? ["the delivery worker is starting"])),
    ];
    const temporalUiUrl = config.temporal.uiUrl ?? embedded.temporalUiUrl;
    const api = await serve(config, started, {
      ...stores,
      log,
      meter,
      tracing,
      target,
      names,
      knowsTemporal: config.temporal.external || embedded.temporalAddress !== undefined,
      temporalUiUrl,
      page,
      works: thread.works,
      isPrepared: () => isPrepared,
      admit: () => instance.admit(),
      readiness,
    });
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

    // Prepare the database.
    const adminKeyFile = await prepareDatabase(config, stores, { signal: stopping.signal, log });
    await instance.start();
    await knowEventTypes(stores);
    isPrepared = true;
    started.defer(
      metrics.watchBacklog(directUrl, async (session, from) => ({
        ...(await readBacklog(session, from)),
        ...(await readIncidentCounts(session)),
      })),
    );
    started.defer(keepSealed(db, secrets, { log, repeat: config.previousSecretKeys.length > 0 }));
    if (config.noticeMail && role !== "api") {
      const { startNoticeMails } = await import("../notices/notice-mails.ts");
      started.defer(startNoticeMails(db, config.noticeMail, log));
    }
    stopping.signal.throwIfAborted();

    // Deliver.
    if (role !== "api") {
      progress("starting the delivery worker");
      const { temporalAddress } = embedded;
      const { workflowBundle } = overrides;
      delivery = await deliver(
        config,
        {
          db,
          directDb,
          directUrl,
          admit: () => instance.admit(),
          secrets,
          target,
          names,
          stopping: stopping.signal,
          log,
          works: thread.works,
          meter,
          tracing,
          ...(workflowBundle ? { workflowBundle } : {}),
        },
        { environment, databaseUrl, secretKey, temporalAddress },
      );
      started.defer(delivery.stop);
      await delivery.ready;
      stopping.signal.throwIfAborted();
    }

    thread.start();
    started.defer(async () => thread.stop());
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
