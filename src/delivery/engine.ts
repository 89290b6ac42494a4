import type { Logger } from "pino";
import type { DeliveryConfig, DispatchConfig } from "../config/config.ts";
import type { Db } from "../db/database.ts";
import { fanOutStep } from "../db/events/fan-out.ts";
import { loadStopped, openChangeFeed } from "../db/queue/changes.ts";
import { claimGroup, claimPending, release } from "../db/queue/claims.ts";
import type { SecretBox } from "../db/webhooks/secret-box.ts";
import { systemClock as clock } from "../process/clock.ts";
import { EventContents } from "./event-contents.ts";
import { type GatheredStatements, gatherStatements } from "./gathered-statements.ts";
import { createHttpClient } from "./http/http-client.ts";
import { NameResolver, type Resolver } from "./http/name-resolver.ts";
import { InFlightLimit } from "./limits/in-flight-limit.ts";
import { clampToGranted, readGranted } from "./limits/process-limits.ts";
import { createMaintenance } from "./maintenance.ts";
import { Pumps } from "./pump.ts";
import { Recorder } from "./recorder.ts";
import { createAddressGuard } from "./request/address-guard.ts";
import { post } from "./request/post.ts";
import { createSigner } from "./request/signature.ts";
import { RetryPasses } from "./retry-pass.ts";
import { Sender } from "./sender.ts";
import { WebhookWatch } from "./webhook-watch.ts";
import { WorkerLease } from "./worker-lease.ts";

/** Idle connections kept open in addition to the limit of requests in flight. */
const IDLE_CONNECTIONS = 1_000;

/** The delivery engine of one process: claims, sends and records deliveries. */
export interface DeliveryEngine {
  db: Db;
  /** Direct connections to PostgreSQL that keep their session settings. Retention uses them. */
  directDb: Db;
  log: Logger;
  pumps: Pumps;
  retries: RetryPasses;
  statements: GatheredStatements;
  lease: WorkerLease;
  timeoutMs: number;
  /** Aborted on shutdown: from then on nothing is claimed or sent. */
  stopping: AbortSignal;
  close(): Promise<void>;
}

/**
 * Builds the delivery engine of a process.
 *
 * @param options.directDb connections to PostgreSQL itself; the same as `db` without a pooler
 * @param options.directUrl the URL for one more connection, outside the pools, that listens for change notifications
 * @param options.reservedFiles file descriptors reserved for API connections in the same process. Defaults to 0
 * @param options.sharedBy the number of processes that share the container's memory, including this one. Defaults to
 *   1
 * @param options.resolver resolves host names. Defaults to the hosts file and DNS; closed with the engine
 */
export function createDeliveryEngine(options: {
  db: Db;
  directDb: Db;
  directUrl: string;
  secrets: SecretBox;
  delivery: DeliveryConfig;
  dispatch: DispatchConfig;
  log: Logger;
  stopping: AbortSignal;
  reservedFiles?: number;
  sharedBy?: number;
  resolver?: Resolver;
}): DeliveryEngine {
  const { db, directDb, directUrl, log, stopping, delivery, dispatch } = options;
  const { allowedNetworks, allowedPorts, timeoutMs } = delivery;
  // A lookup never runs longer than the attempt that needs it.
  const { resolver = new NameResolver({ timeoutMs }) } = options;
  const spacing = {
    initialDelayMs: dispatch.retryInitialDelayMs,
    coefficient: dispatch.retryBackoffCoefficient,
  };
  const limits = clampToGranted(delivery, readGranted(options.sharedBy ?? 1), options.reservedFiles ?? 0);
  for (const warning of limits.warnings) log.warn(warning);
  const client = createHttpClient(
    createAddressGuard(allowedNetworks, { allowedPorts, resolver }),
    limits.maxInFlight + IDLE_CONNECTIONS,
  );
  const lease = new WorkerLease(db, dispatch.heartbeatTimeoutMs, log);
  const maintenance = createMaintenance(db, lease, log, delivery.maxPendingPerWebhook);
  const statements = gatherStatements(db);
  const watch = new WebhookWatch({
    clock,
    log,
    openFeed: (on) => openChangeFeed(directUrl, on),
    loadStopped: (webhookIds) => loadStopped(db, webhookIds),
    listener: {
      queued: () => pumps.wake(),
      held: () => sender.held(),
      stopped: (webhookIds) => sender.stop(webhookIds),
    },
  });
  const sender = new Sender(
    {
      clock,
      log,
      post: (request, outcome, gate) => post(client, request, timeoutMs, outcome, gate),
      sign: createSigner(options.secrets),
      recorder: new Recorder(db, spacing, log, (workerId) => lease.retire(workerId)),
      release: (workerId, some) => release(db, workerId, some),
      lease,
      watch,
      contents: new EventContents(db, limits.memoryBytes),
      limit: new InFlightLimit(limits.maxInFlight),
    },
    { perHost: delivery.maxPerHost, perWebhook: delivery.maxPerWebhook },
  );
  const pumps = new Pumps({
    queue: {
      claim: (claimant, options) => claimPending(db, claimant, options),
      fanOut: () => fanOutStep(db),
    },
    log,
    lease,
    sender,
    clock,
  });
  maintenance.start();
  watch.start();
  return {
    db,
    directDb,
    log,
    pumps,
    retries: new RetryPasses({
      clock,
      claim: (claimant, options) => claimGroup(db, claimant, options),
      lease,
      sender,
      statements,
    }),
    statements,
    lease,
    timeoutMs,
    stopping,
    async close() {
      resolver.close();
      await sender.close();
      await Promise.all([client.destroy(), maintenance.close(), watch.close(), lease.close()]);
    },
  };
}
