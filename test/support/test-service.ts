import { randomBytes, randomUUID } from "node:crypto";
import { readFile } from "node:fs/promises";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { ConnectError, createClient, type Interceptor, type Transport } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { Connection, Client as TemporalClient } from "@temporalio/client";
import pRetry from "p-retry";
import { afterAll, beforeAll, expect, onTestFinished } from "vitest";
import { type Receiver, type Reply, startReceiver } from "../../demo/receiver.ts";
import { ApiKeyService } from "../../gen/webhook/v1/api_key_pb.ts";
import { type Delivery, DeliveryService, DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import {
  EventService,
  type PublishEventRequestSchema,
  type WebhookProcess,
} from "../../gen/webhook/v1/event_pb.ts";
import { WebhookService } from "../../gen/webhook/v1/webhook_pb.ts";
import { type Service, startService } from "../../src/app/service.ts";
import { readConfig } from "../../src/config/config.ts";
import { openDatabase } from "../../src/lib/pg/database.ts";
import { createLogger } from "../../src/lib/process/logger.ts";
import { FINAL_STATES } from "../../src/log/deliveries.ts";
import { type TemporalNames, temporalNames } from "../../src/temporal/names.ts";
import { installRuntime } from "../../src/temporal/native/runtime.ts";
import type { DispatchReport } from "../../workflows/dispatch-input.ts";
import { sendKey } from "./clients.ts";
import { createTestDatabase } from "./database.ts";
import { startRun } from "./dispatch-runs.ts";
import { part } from "./parts.ts";
import { PATIENCE_MS } from "./patience.ts";
import { localCertificate, trustedAuthority } from "./receivers.ts";
import { eventually } from "./wait.ts";

export { trustedAuthority };

const LOG_LEVEL = process.env.TEST_LOG_LEVEL ?? "silent";
/** Short times, so that four attempts take a second. */
const PACE = {
  DISPATCH_INTERVAL: "1s",
  RETRY_INITIAL_DELAY: "200ms",
  RETRY_BACKOFF_COEFFICIENT: "1.5",
  // Long enough for a busy machine: what a worker that is taken for dead has sent is sent again, a POST that is late counts
  // as an attempt, and the tests count requests and attempts.
  HEARTBEAT_TIMEOUT: "20s",
  DELIVERY_TIMEOUT: "60s",
  DELIVERY_ALLOWED_NETWORKS: "127.0.0.0/8",
};

/** For tests that await deliveries and not their time: what is published or resumed is sent at once, and nothing else. */
export const WOKEN = { DISPATCH_INTERVAL: "1h", DISPATCH_ON_PUBLISH: "true" };
/** For tests that start each dispatch run themselves, by `dispatch` or `startRun`. */
export const BY_HAND = { DISPATCH_INTERVAL: "24h" };

/** A whole service of a test file's own, on the run's PostgreSQL and Temporal. */
export type TestService = Awaited<ReturnType<typeof startTestService>>;

/** The service of a test file, from before its first test until after the last one. */
export function fileService(settings: Record<string, string>): TestService {
  const service = {} as TestService;
  beforeAll(async () => void Object.assign(service, await startTestService(settings)));
  afterAll(() => service.stop?.());
  return service;
}

/**
 * @param settings environment variables over the short times of tests
 * @param onDatabase further ones, which depend on the database's address
 */
export async function startTestService(
  settings: Record<string, string> = {},
  onDatabase: (url: string) => Promise<Record<string, string>> = async () => ({}),
) {
  const database = settings.DATABASE_URL
    ? { url: settings.DATABASE_URL, drop: async () => {} }
    : await createTestDatabase();
  const names = temporalNames(`${randomUUID()}-`);
  const adminKey = `whk_${randomBytes(24).toString("base64url")}`;
  const namespace = settings.TEMPORAL_NAMESPACE ?? "default";
  const { address } = await part("temporal");
  const { TEMPORAL_ADDRESS = address } = settings;
  const environment = { TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE: namespace };
  quietRuntime();
  const variables = {
    HOST: "127.0.0.1",
    HTTP_PORT: "0",
    GRPC_PORT: "0",
    LOG_LEVEL,
    // In this process, which trusts the receivers' authority and has the run's workflow bundle.
    DELIVERY_PROCESSES: "0",
    DATABASE_URL: database.url,
    SECRET_KEY: randomBytes(32).toString("base64"),
    ADMIN_KEY: adminKey,
    ...environment,
    ...PACE,
    ...settings,
    ...(await onDatabase(database.url)),
  };
  const certificate = await localCertificate();
  const code = await readFile((await part("workflows")).bundle, "utf8");
  const start = (role: Record<string, string>, workflowBundle = { code }) =>
    startService(readConfig({ ...variables, ...role }), { names, environment, workflowBundle });
  const service = await start({});
  const db = openDatabase(database.url, { max: 3, applicationName: "test" });
  const connection = await Connection.connect({ address });
  const temporal = new TemporalClient({ connection, namespace });
  const receivers: Receiver[] = [];
  const workers: Service[] = [];
  let stopped: Promise<void> | undefined;
  // With TLS, gRPC shares the port of HTTP.
  const grpcPort = service.grpcPort ?? service.httpPort;
  const transport = keyedTransport(grpcPort, adminKey, [patiently]);
  const deliveries = createClient(DeliveryService, transport);
  const webhooks = createClient(WebhookService, transport);
  const events = createClient(EventService, transport);
  const publishData = (data: MessageInitShape<typeof PublishEventRequestSchema>["data"]) =>
    events.publishEvent({ idempotencyKey: randomUUID(), userId: "tenant-1", ...(data ? { data } : {}) });

  /** Starts an HTTPS receiver that the service trusts. */
  async function receiver(reply?: Reply): Promise<Receiver> {
    const started = await startReceiver(certificate, reply);
    receivers.push(started);
    return { ...started, until: (condition) => untilReceived(started, condition) };
  }

  /** Registers a webhook for OrderDispatched, with the administrator's key or the given one. */
  async function register(url: string, { key, process = 1 }: { key?: string; process?: number } = {}) {
    const options = key === undefined ? {} : { headers: { "X-Service-Key": key } };
    const { webhook } = await webhooks.createWebhook({ process: process as WebhookProcess, url }, options);
    return webhook?.id as bigint;
  }

  /** The event's deliveries, once each has come to an end. */
  async function untilFinal(eventId: string) {
    const open = () =>
      db("all_deliveries").where({ event_id: eventId }).whereNotIn("state", FINAL_STATES).first();
    await eventually(async () => expect(await open()).toBeUndefined());
    return (await deliveries.listDeliveries({ eventId, pageSize: 1_000 })).deliveries;
  }

  async function stop(): Promise<void> {
    await deleteSchedules(temporal, names);
    await Promise.all([service, ...workers].map((one) => one.stop()));
    await Promise.all(receivers.map((receiver) => receiver.close()));
    await connection.close();
    await db.destroy();
    await database.drop();
  }

  return {
    url: service.url,
    grpcPort,
    /** Undefined without METRICS_PORT. */
    metricsUrl: service.metricsUrl,
    databaseUrl: database.url,
    db,
    adminKey,
    temporal,
    scheduleId: names.scheduleId,
    retentionScheduleId: names.retentionScheduleId,
    /** For clients of any service; calls carry the administrator's key. */
    transport,
    keys: createClient(ApiKeyService, transport),
    webhooks,
    deliveries,
    events,
    receiver,
    register,
    untilFinal,
    /** Starts a receiver, and registers a webhook for OrderDispatched at it. */
    async endpoint(reply?: Reply) {
      const started = await receiver(reply);
      return { ...started, webhookId: await register(`${started.url}/`) };
    },
    /** Expects that the event's only delivery is delivered in the end, by so many attempts; answers it. */
    async untilDelivered(eventId: string, attemptCount = 1): Promise<Delivery> {
      const ended = await untilFinal(eventId);
      expect(ended).toMatchObject([{ state: DeliveryState.DELIVERED, attemptCount }]);
      return ended[0] as Delivery;
    },
    /** Deletes every webhook, for tests that share a service. */
    async removeWebhooks() {
      const listed = (await webhooks.listWebhooks({})).webhooks;
      await Promise.all(listed.map(({ id }) => webhooks.deleteWebhook({ webhookId: id })));
    },
    /** Publishes an order dispatched, under a fresh idempotency key. */
    publish: (orderId = 1n, orderNumber = `SO-${orderId}`) =>
      publishData({
        case: "orderDispatched",
        value: { orderId, orderNumber, dispatchedAt: { seconds: 1_790_000_000n, nanos: 987_654_321 } },
      }),
    /** Publishes a document created, under a fresh idempotency key. */
    publishDocument: () =>
      publishData({
        case: "documentCreated",
        value: { documentId: 1n, kind: 1, number: "D", createdAt: { seconds: 1n } },
      }),
    /** Makes a dispatch run, and answers its result. */
    async dispatch(input?: Record<string, unknown>): Promise<DispatchReport> {
      const run = await startRun({ temporal, scheduleId: names.scheduleId }, input);
      return (await run.result()) as DispatchReport;
    },
    /**
     * Starts another worker of the service, which ends with it at the latest.
     *
     * @param workflowBundle of other workflows than this build's
     */
    async startWorker(workflowBundle?: { code: string }, more: Record<string, string> = {}) {
      const worker = await start({ ROLE: "worker", DELIVERY_PROCESSES: "1", ...more }, workflowBundle);
      workers.push(worker);
      return worker;
    },
    /** Ends everything, once. */
    stop: () => (stopped ??= stop()),
  };
}

/**
 * Names of a test's own in the run's Temporal. Their schedules are deleted after the test: they would start runs, which no
 * worker takes, for as long as the other tests last.
 */
export function ownTemporalNames(namespace = "default"): TemporalNames {
  const names = temporalNames(`${randomUUID()}-`);
  onTestFinished(async () => {
    const connection = await Connection.connect({ address: (await part("temporal")).address });
    await deleteSchedules(new TemporalClient({ connection, namespace }), names);
    await connection.close();
  });
  return names;
}

/** Deletes the schedules of a worker, which would start runs for as long as Temporal runs. */
async function deleteSchedules(temporal: TemporalClient, names: TemporalNames): Promise<void> {
  const deletions = [names.scheduleId, names.retentionScheduleId].map((id) =>
    temporal.schedule.getHandle(id).delete(),
  );
  // A service that did not come so far has none.
  await Promise.allSettled(deletions);
}

/** Repeats a call for as long as the database does not answer in time, as on a very busy machine. */
const patiently: Interceptor = (next) => (request) =>
  pRetry(() => next(request), {
    retries: Number.POSITIVE_INFINITY,
    maxTimeout: 1_000,
    maxRetryTime: PATIENCE_MS,
    shouldRetry: ({ error }) => !request.stream && ConnectError.from(error).rawMessage === DATABASE_AWAY,
  });
const DATABASE_AWAY = "the database is unavailable; retry";

/** As `until` of a receiver, which has no limit. Fails with the requests that have come. */
async function untilReceived({ url, received }: Receiver, condition: Parameters<Receiver["until"]>[0]) {
  await eventually(() => {
    const requests = received.map(({ path, headers }) => `${path} ${headers["x-service-webhook-id"]}`);
    expect(condition(received), `${url} waits for more than ${received.length}: ${requests}`).toBe(true);
  });
  return received;
}

/** A gRPC transport whose calls carry the key, unless they carry one of their own. */
export function keyedTransport(grpcPort: number, key: string, interceptors: Interceptor[] = []): Transport {
  return createGrpcTransport({
    baseUrl: `http://127.0.0.1:${grpcPort}`,
    interceptors: [...interceptors, sendKey(() => key)],
  });
}

let quiet = false;

/** The SDK's log goes where the service's goes; once a process. */
export function quietRuntime(): void {
  if (!quiet) installRuntime(createLogger(LOG_LEVEL));
  quiet = true;
}
