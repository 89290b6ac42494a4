import { randomBytes, randomUUID } from "node:crypto";
import type { DescService } from "@bufbuild/protobuf";
import { type Client, createClient } from "@connectrpc/connect";
import { Http2SessionManager } from "@connectrpc/connect-node";
import { createNoopMeter } from "@opentelemetry/api";
import pino from "pino";
import type { WebhookProcess } from "../../gen/webhook/v1/event_pb.ts";
import { Permission } from "../../gen/webhook/v1/options_pb.ts";
import { WebhookService } from "../../gen/webhook/v1/webhook_pb.ts";
import type { ApiContext } from "../../src/api/context/context.ts";
import { type ApiOptions, startApi } from "../../src/api/server.ts";
import { createServices, type ServiceParts } from "../../src/app/services.ts";
import { readConfig } from "../../src/config/config.ts";
import { createGuards } from "../../src/delivery/request/guards.ts";
import { createSigner } from "../../src/delivery/request/signature.ts";
import { createTargetRules } from "../../src/delivery/request/target-url.ts";
import { FilterThreads } from "../../src/filters/filter-threads.ts";
import { ALL_PERMISSIONS, createApiKey, type NewApiKey } from "../../src/keys/api-keys.ts";
import { createInstalledApp } from "../../src/keys/installed-apps.ts";
import { openDatabase } from "../../src/lib/pg/database.ts";
import type { StaleReads } from "../../src/lib/pg/read-replica.ts";
import { createApiInstruments } from "../../src/metrics/instruments.ts";
import { createSecretBox } from "../../src/webhooks/secret-box.ts";
import { grpc } from "./clients.ts";
import { createTestDatabase, empty } from "./database.ts";
import { DESCRIBED_TIMEOUT_MS, expectDescribed } from "./described-answers.ts";
import { serviceClients } from "./service-clients.ts";

/** An envelope as REST answers it; numbers as JSON.parse reads them. */
export interface Envelope {
  Success: boolean;
  // biome-ignore lint/suspicious/noExplicitAny: whatever the endpoint answers
  Data: any;
  Warnings: string[];
}

/** One REST answer. */
export interface RestAnswer {
  status: number;
  headers: Headers;
  text: string;
  envelope: Envelope;
}

/** How a REST call carries its parameters. */
export interface RestRequest {
  /** The key's secret; null sends none. The administrator's when left out. */
  key?: string | null;
  query?: Record<string, string> | [string, string][];
  json?: unknown;
  form?: Record<string, string> | [string, string][];
  /** A body as it is, with its content type. */
  raw?: { body: string | Uint8Array<ArrayBuffer>; type?: string };
  headers?: Record<string, string>;
}

/** The real API on a database of its own, or on one that the files of a worker share. */
export type TestApi = Awaited<ReturnType<typeof startTestApi>>;

/** Longer than any result is cached, in milliseconds. */
const CACHED_MS = 86_400_000;

/** Starts the API on free ports, on a fresh database unless one is given. */
export async function startTestApi(
  options: Omit<Partial<ApiOptions>, "services"> &
    Partial<Pick<ApiContext, "readiness" | "log">> &
    Partial<
      Pick<
        ServiceParts,
        "dispatchNow" | "tryRequest" | "warningsOf" | "searchIndex" | "isolatesApps" | "overviewSilenceMs"
      >
    > & {
      /** False starts the API of a process that only delivers. */
      services?: false;
      databaseUrl?: string;
      limits?: Partial<ApiContext["limits"]>;
      /** Which addresses webhooks may have. Defaults to public ones. */
      environment?: NodeJS.ProcessEnv;
      /** Makes what lists are read with. */
      reads?: (log: ApiContext["log"]) => StaleReads;
    } = {},
) {
  const database = options.databaseUrl
    ? { url: options.databaseUrl, drop: async () => {} }
    : await createTestDatabase();
  const db = openDatabase(database.url, { max: 10, applicationName: "test" });
  const log = options.log ?? pino({ level: process.env.TEST_LOG_LEVEL ?? "silent" });
  const secrets = createSecretBox(randomBytes(32));
  const filters = new FilterThreads(readConfig({}).delivery.filterTimeoutMs, log);
  let nowMs = 0;
  const context: ApiContext & ServiceParts = {
    db,
    ...(options.reads ? { reads: options.reads(log) } : {}),
    secrets,
    sign: createSigner(secrets),
    filters,
    targets: createTargetRules(createGuards(readConfig(options.environment ?? {}).delivery)),
    instruments: createApiInstruments(createNoopMeter()),
    log,
    // Tests send wrong keys by the dozen, all from one address.
    limits: { ...readConfig({}).limits, wrongKeysPerMinute: 0, ...options.limits },
    deliveryTimeoutMs: DESCRIBED_TIMEOUT_MS,
    retentionDays: 30,
    searchIndex: options.searchIndex ?? true,
    // Nothing is cached: a call that a file has left open would have the next one's statistics read too early.
    now: () => {
      nowMs += CACHED_MS;
      return nowMs;
    },
    readiness: options.readiness ?? (async () => []),
    ...(options.dispatchNow ? { dispatchNow: options.dispatchNow } : {}),
    ...(options.tryRequest ? { tryRequest: options.tryRequest } : {}),
    ...(options.isolatesApps ? { isolatesApps: true } : {}),
    ...(options.warningsOf ? { warningsOf: options.warningsOf } : {}),
    ...(options.overviewSilenceMs ? { overviewSilenceMs: options.overviewSilenceMs } : {}),
  };
  const services = options.services === false ? undefined : createServices(context);
  const started = await startApi(context, { httpPort: 0, grpcPort: 0, ...options, services });
  /** Makes a key; every permission unless told. */
  const key = async (more?: Partial<NewApiKey>): Promise<{ id: string; secret: string }> => {
    const made = await createApiKey(db, { name: "test", permissions: ALL_PERMISSIONS, ...more });
    return { id: made.key.id, secret: made.secret };
  };
  let admin = await key({ name: "admin" });
  const grpcUrl = `http://127.0.0.1:${started.grpcPort ?? started.httpPort}`;
  const connection = new Http2SessionManager(grpcUrl);
  const keyed = {
    grpcUrl,
    /** Secret of a key with every permission; another one after `empty`. */
    get adminKey(): string {
      return admin.secret;
    },
    get adminKeyId(): string {
      return admin.id;
    },
  };
  /** A client of a service, over one connection for all. Calls carry the secret, the administrator's unless given. */
  const client = <Service extends DescService>(service: Service, secret?: string): Client<Service> =>
    createClient(service, grpc(keyed, secret, connection));
  const as = (secret?: string) => serviceClients((service) => client(service, secret));
  return Object.assign(keyed, as(), {
    ...started,
    context,
    databaseUrl: database.url,
    key,
    client,
    /** Clients with a key's secret; the members of this name have the administrator's. */
    as,
    /** Registers a webhook, for OrderDispatched at an address of its own unless given; answers its id. */
    async register({
      process = 1,
      url = freshUrl(),
      key: secret,
    }: {
      process?: WebhookProcess;
      url?: string;
      key?: string;
    } = {}) {
      const { webhook } = await client(WebhookService, secret).createWebhook({ process, url });
      return webhook?.id as bigint;
    },
    /** Revokes a key and deletes its webhooks. */
    revoke: (apiKeyId: string) =>
      as().keys.revokeApiKey({ apiKeyId, webhooks: { case: "deleteWebhooks", value: {} } }),
    /** Makes an installed app; answers its id. */
    app: async (name = "app") => (await createInstalledApp(db, name)).id,
    /** Calls REST and holds the answer against the OpenAPI description. */
    rest: (method: string, path: string, request?: RestRequest) =>
      callRest(started.url, admin.secret, method, path, request),
    /** Removes all rows, and makes a new administrator's key. */
    async empty() {
      await empty(db);
      admin = await key({ name: "admin" });
    },
    async stop() {
      await started.stop();
      await filters.close();
      await db.destroy();
      await database.drop();
    },
  });
}

let shared: Promise<TestApi> | undefined;

/**
 * The API that the files of this worker share, one after the other, with empty tables and caches. Only tests of settings,
 * limits, listeners and failures start one of their own.
 */
export async function useApi(): Promise<TestApi> {
  shared ??= startTestApi();
  const api = await shared;
  await api.empty();
  return api;
}

/** An address that no other webhook has. */
export const freshUrl = () => `https://receiver.example/${randomUUID()}`;

/** The fields that the contract (2.1) gives a webhook. */
export const CONTRACT_FIELDS = ["Id", "Created", "Modified", "WebhookProcess", "Url", "Application"];

/** Keys that can do one thing only. */
export const ONLY = {
  read: [Permission.READ_ADMINISTRATIVE_DATA],
  write: [Permission.WRITE_ADMINISTRATIVE_DATA],
  publish: [Permission.PUBLISH_EVENTS],
  manage: [Permission.MANAGE_API_KEYS],
  register: [Permission.MANAGE_EVENT_TYPES],
};

async function callRest(
  baseUrl: string,
  adminKey: string,
  method: string,
  path: string,
  { key = adminKey, query, json, form, raw, headers = {} }: RestRequest = {},
): Promise<RestAnswer> {
  const url = `${baseUrl}${path}${query ? `?${new URLSearchParams(query)}` : ""}`;
  const sent = new Headers(headers);
  if (key !== null) sent.set("X-Service-Key", key);
  if (json !== undefined) sent.set("Content-Type", "application/json");
  if (raw?.type !== undefined) sent.set("Content-Type", raw.type);
  const body = json === undefined ? (form ? new URLSearchParams(form) : raw?.body) : JSON.stringify(json);
  const response = await fetch(url, { method, headers: sent, ...(body === undefined ? {} : { body }) });
  const text = await response.text();
  const { status, headers: answered } = response;
  expectDescribed({ method, path, status, header: (name) => answered.get(name), text });
  return {
    status,
    headers: answered,
    text,
    envelope: (text === "" ? null : JSON.parse(text)) as Envelope,
  };
}
