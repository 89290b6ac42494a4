import type { Meter } from "@opentelemetry/api";
import type { Logger } from "pino";
import { startApi } from "../api/index.ts";
import type { Config } from "../config/index.ts";
import {
  createGuards,
  createHostWarnings,
  createRequestTrial,
  createSigner,
  createTargetRules,
} from "../delivery/request/index.ts";
import { createDispatchTrigger } from "../dispatch/index.ts";
import { createAnnouncer } from "../events/index.ts";
import { FilterThreads } from "../filters/index.ts";
import { watchFiles } from "../lib/process/index.ts";
import { createApiInstruments, observeCertificate, type Tracing } from "../metrics/index.ts";
import { type TemporalNames, type TemporalTarget, workflowLinks } from "../temporal/index.ts";
import { createServices } from "./services.ts";
import type { Stores } from "./stores.ts";

/**
 * Starts the API, which refuses calls with UNAVAILABLE until the database is prepared: probes then see a process that is alive, and
 * why it is not ready.
 *
 * @param started closes what is started here, except for the API, which the caller stops
 */
export async function serve(
  config: Config,
  started: AsyncDisposableStack,
  parts: Pick<Stores, "db" | "reads" | "secrets" | "databaseUrl"> & {
    log: Logger;
    meter: Meter;
    tracing: Tracing;
    target: TemporalTarget;
    names: TemporalNames;
    /** Whether there is a Temporal to start runs with. */
    knowsTemporal: boolean;
    temporalUiUrl: string | undefined;
    /** The folder of the settings page; undefined without one. */
    page: string | undefined;
    works: (on: string) => void;
    isPrepared: () => boolean;
    admit: () => Promise<void> | undefined;
    readiness: () => Promise<string[]>;
  },
) {
  const { db, secrets, log, meter, tracing, target } = parts;
  const { role, delivery, tls } = config;
  const isWorker = role === "worker";
  const dispatch =
    parts.knowsTemporal && !isWorker ? createDispatchTrigger(target, parts.names, log) : undefined;
  if (dispatch) started.defer(dispatch.close);
  const announcer =
    config.dispatch.onPublish && !isWorker ? createAnnouncer(parts.databaseUrl, log) : undefined;
  if (announcer) started.defer(announcer.close);
  const guards = createGuards(delivery);
  const hostWarnings = createHostWarnings(delivery);
  started.defer(async () => hostWarnings.close());
  const filters = new FilterThreads(delivery.filterTimeoutMs, log);
  started.defer(() => filters.close());
  const context = {
    ...parts,
    instruments: createApiInstruments(meter),
    tracer: tracing.tracer,
    limits: config.limits,
    deliveryTimeoutMs: delivery.timeoutMs,
  };
  const services = createServices({
    ...context,
    sign: createSigner(secrets),
    isolatesApps: config.isolatesApps,
    retentionDays: config.dispatch.retentionDays,
    searchIndex: config.searchIndex,
    ...(dispatch ? { dispatchNow: dispatch.trigger, findActivity: dispatch.findActivity } : {}),
    ...(announcer ? { onQueued: announcer.announce } : {}),
    workflowUrl: workflowLinks(parts.temporalUiUrl, target.namespace),
    filters,
    targets: createTargetRules(guards),
    warningsOf: hostWarnings.of,
    tryRequest: createRequestTrial({ db, secrets, guards, delivery, log }),
  });
  const api = await startApi(context, {
    host: config.host,
    httpPort: config.httpPort,
    grpcPort: config.grpcPort,
    basePath: config.basePath,
    tls,
    accessLog: config.accessLog,
    publicCatalogue: config.publicCatalogue,
    services: isWorker ? undefined : services,
    page: parts.page,
  });
  if (tls) {
    let certificate = tls.cert;
    observeCertificate(meter, () => certificate);
    const { certFile, keyFile } = tls;
    const stopWatching = watchFiles(
      [certFile, keyFile],
      [tls.cert, tls.key],
      ([cert = "", key = ""]) => {
        api.setCertificate({ cert, key });
        certificate = cert;
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
  return api;
}
