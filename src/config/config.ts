import { availableParallelism } from "node:os";
import { cleanEnv, EnvMissingError, str } from "envalid";
import type { Network, ProxyAddress } from "../lib/egress/index.ts";
import { checkTogether } from "./check-together.ts";
import { ConfigError } from "./config-error.ts";
import { readText, withSecretFiles } from "./secret-files.ts";
import {
  apiKeySecret,
  basePath,
  buildId,
  bytes,
  choice,
  deploymentName,
  duration,
  emailAddress,
  emailAddresses,
  flag,
  hostPatterns,
  integer,
  networks,
  number,
  pageUrl,
  ports,
  postgresUrl,
  proxyAddress,
  replicaUrl,
  secretKey,
  secretKeys,
  smtpUrl,
} from "./values.ts";

/** The role of a process: `api` serves calls, `worker` delivers, `all` does both. */
export type Role = "all" | "api" | "worker";

/** The configuration of a process. Times are in milliseconds. */
export interface Config {
  role: Role;
  /** The address to listen on. Empty: all addresses, of IPv6 too if the system has it. */
  host: string;
  httpPort: number;
  grpcPort: number;
  /** The path prefix of the API and the settings page behind a proxy, such as `/webhooks`. Empty for none. */
  basePath: string;
  metrics: MetricsConfig;
  /** Whether traces are sent by OTLP, by OpenTelemetry's own variables. */
  traces: { otlp: boolean };
  /** The certificate and key of the listeners, PEM, and their files, which are read again when they change. */
  tls: TlsConfig | undefined;
  logLevel: string;
  /** A log line for each request. */
  accessLog: boolean;
  /** The time after SIGTERM for which the API still serves while `/readyz` answers 503. */
  shutdownDelayMs: number;
  /** The folder for the state of embedded parts. */
  dataDir: string;
  database: DatabaseConfig;
  temporal: {
    /** Whether the environment names a Temporal; otherwise it is embedded. */
    external: boolean;
    uiUrl: string | undefined;
  };
  adminKey: string | undefined;
  /** The key that encrypts signing secrets at rest, 32 bytes. */
  secretKey: Buffer | undefined;
  /** Previous values of `secretKey`, 32 bytes each, used for decryption only. */
  previousSecretKeys: Buffer[];
  /** Whether searchable values of published payloads are stored for searches. */
  searchIndex: boolean;
  limits: LimitsConfig;
  dispatch: DispatchConfig;
  delivery: DeliveryConfig;
  /** The e-mails of notices. Undefined: none are sent. */
  noticeMail: NoticeMailConfig | undefined;
}

/** Settings of e-mails of notices. */
export interface NoticeMailConfig {
  /** `smtps:` or `smtp:`, with the user and the password, if any. */
  smtpUrl: string;
  from: string;
  to: string[];
  /** The minimum interval between e-mails. */
  intervalMs: number;
}

/** A certificate chain and its private key, both PEM, with the paths of their files. */
export interface TlsConfig {
  cert: string;
  key: string;
  certFile: string;
  keyFile: string;
}

/** Exports of metrics. */
export interface MetricsConfig {
  /** The port for Prometheus; 0 selects a free one. Undefined: none. */
  port: number | undefined;
  /** Sent by OTLP, by OpenTelemetry's own variables. */
  otlp: boolean;
}

/** Settings of the database. */
export interface DatabaseConfig {
  /** Undefined for the embedded database. */
  url: string | undefined;
  /** The address for uses that a pooler in transaction mode does not support. Undefined: same as `url`. */
  directUrl: string | undefined;
  /** A streaming replica that lists and exports of deliveries are read from. Undefined: none. */
  readUrl: string | undefined;
  poolSize: number;
  /** Whether frequent statements are prepared once per connection. */
  preparedStatements: boolean;
}

/** Limits for callers. */
export interface LimitsConfig {
  /** The rate limit per key and process, in requests per minute; 0 for no limit. */
  requestsPerMinute: number;
  /** The limit of invalid keys per address and process, in attempts per minute; 0 for no limit. */
  wrongKeysPerMinute: number;
  /** The maximum number of live webhooks. */
  maxWebhooks: number;
  /** The maximum number of API keys, including revoked ones. */
  maxApiKeys: number;
  /** The maximum number of installed apps. */
  maxInstalledApps: number;
  /** Proxies whose X-Forwarded-For, -Proto, -Host, -Port and -Prefix headers are trusted. */
  trustedProxies: Network[];
  /** The maximum number of connections per listener. */
  maxConnections: number;
  /** The maximum number of connections per listener and address, except trusted proxies. */
  maxConnectionsPerAddress: number;
  /** The maximum number of concurrent streams per HTTP/2 session. */
  http2MaxStreams: number;
  /** The maximum rate of stream resets by the client of an HTTP/2 session, per second. */
  http2ResetsPerSecond: number;
  /** The idle timeout of an incomplete request, in milliseconds. */
  requestIdleMs: number;
}

/** The schedule of attempts and the retention of deliveries. */
export interface DispatchConfig {
  /** With `onPublish`, at most `MAX_LINGERING_INTERVAL_MS`. */
  intervalMs: number;
  /** Whether published events are dispatched immediately, in addition to the interval. */
  onPublish: boolean;
  /** The delay before the first retry. */
  retryInitialDelayMs: number;
  /** The factor between consecutive retry delays. */
  retryBackoffCoefficient: number;
  /** The time without heartbeats after which a worker counts as dead. */
  heartbeatTimeoutMs: number;
  /** The retention of finished deliveries, their events and idempotency keys, in days. */
  retentionDays: number;
  /** The retention of payloads, in days. Undefined: as long as their events. */
  payloadRetentionDays: number | undefined;
  /** The retention of audit entries, in days. */
  auditRetentionDays: number;
  /** The version of the workers, in a Worker Deployment of Temporal. Undefined: workers have no version. */
  deployment: DeploymentConfig | undefined;
}

/** A version of a Worker Deployment of Temporal. */
export interface DeploymentConfig {
  name: string;
  buildId: string;
}

/** Settings of the delivery engine. */
export interface DeliveryConfig {
  /** The number of delivery processes; 0 delivers in the API's process. */
  processes: number;
  /** The timeout of an attempt, including the response. */
  timeoutMs: number;
  /** The maximum number of requests in flight per process. */
  maxInFlight: number;
  /** The maximum number of requests in flight per host and per webhook. */
  maxPerHost: number;
  maxPerWebhook: number;
  /** The share of a busy thread's time for receivers that fail one attempt after another, 0.01 to 1. */
  failingShare: number;
  /** The limit of an evaluation of a filter, in processor time. Also applies to the API. */
  filterTimeoutMs: number;
  /** The maximum number of pending first attempts per webhook, beyond which deliveries fail; 0 for no limit. */
  maxPendingPerWebhook: number;
  /** Whether requests carry the `traceparent` of the event's trace. */
  sendTraceparent: boolean;
  /** The maximum size of payloads held by a process, in bytes. */
  memoryBytes: number;
  /** Non-public networks to which deliveries are allowed. */
  allowedNetworks: Network[];
  /** Names of receivers with private addresses to which deliveries are allowed. `*.` stands for all names below. */
  allowedHosts: string[];
  /** Blocked ports to which deliveries are allowed. */
  allowedPorts: number[];
  /** The proxy of all connections to receivers and token endpoints. Undefined to connect directly. */
  proxy: ProxyAddress | undefined;
  /** Who looks up host names: this service, or the proxy. */
  proxyDns: ProxyDns;
}

/** Who looks up the host names of receivers: `local` is this service, `remote` the outbound proxy. */
type ProxyDns = "local" | "remote";

const HOUR = 3_600_000;
/**
 * The maximum interval between runs whose pumps linger, in milliseconds. A run cannot continue as new while its pumps work, and
 * Temporal terminates one with 51,200 events.
 */
const MAX_LINGERING_INTERVAL_MS = HOUR;
const MIB = 2 ** 20;

const variables = {
  ROLE: choice<Role>(["all", "api", "worker"])({ default: "all" }),
  HOST: str({ default: "" }),
  HTTP_PORT: integer({ min: 0, max: 65_535 })({ default: 8080 }),
  GRPC_PORT: integer({ min: 0, max: 65_535 })({ default: 9090 }),
  BASE_PATH: basePath({ default: "" }),
  METRICS_PORT: integer({ min: 0, max: 65_535 })({ default: undefined }),
  TLS_CERT: str({ default: undefined }),
  TLS_KEY: str({ default: undefined }),
  LOG_LEVEL: choice(["trace", "debug", "info", "warn", "error", "fatal", "silent"], {
    warning: "warn",
    critical: "fatal",
    off: "silent",
  })({ default: "info" }),
  ACCESS_LOG: flag({ default: false }),
  SHUTDOWN_DELAY: duration({ min: 0, max: 10 * 60_000 })({ default: 0 }),
  DATA_DIR: str({ default: ".data" }),
  DATABASE_URL: postgresUrl({ default: undefined }),
  DATABASE_DIRECT_URL: postgresUrl({ default: undefined }),
  DATABASE_READ_URL: replicaUrl({ default: undefined }),
  DATABASE_POOL_SIZE: integer({ min: 2, max: 500 })({ default: 20 }),
  DATABASE_PREPARED_STATEMENTS: flag({ default: true }),
  TEMPORAL_ADDRESS: str({ default: undefined }),
  TEMPORAL_PROFILE: str({ default: undefined }),
  TEMPORAL_CONFIG_FILE: str({ default: undefined }),
  TEMPORAL_UI_URL: pageUrl({ default: undefined }),
  TEMPORAL_DEPLOYMENT_NAME: deploymentName({ default: undefined }),
  TEMPORAL_WORKER_BUILD_ID: buildId({ default: undefined }),
  ADMIN_KEY: apiKeySecret({ default: undefined }),
  SECRET_KEY: secretKey({ default: undefined }),
  SECRET_KEY_PREVIOUS: secretKeys({ default: [] }),
  RATE_LIMIT_PER_MINUTE: integer({ min: 0, max: 10_000_000 })({ default: 0 }),
  WRONG_KEYS_PER_MINUTE: integer({ min: 0, max: 1_000_000 })({ default: 60 }),
  TRUST_PROXY: networks({ default: [] }),
  MAX_CONNECTIONS: integer({ min: 10, max: 1_000_000 })({ default: 10_000 }),
  MAX_CONNECTIONS_PER_ADDRESS: integer({ min: 2, max: 1_000_000 })({ default: 500 }),
  MAX_STREAMS_PER_CONNECTION: integer({ min: 1, max: 100_000 })({ default: 200 }),
  MAX_RESETS_PER_SECOND: integer({ min: 1, max: 100_000 })({ default: 100 }),
  REQUEST_IDLE_TIMEOUT: duration({ min: 1_000, max: HOUR })({ default: 60_000 }),
  MAX_WEBHOOKS: integer({ min: 1, max: 1_000_000 })({ default: 10_000 }),
  MAX_API_KEYS: integer({ min: 1, max: 1_000_000 })({ default: 10_000 }),
  MAX_INSTALLED_APPS: integer({ min: 1, max: 1_000_000 })({ default: 10_000 }),
  MAX_PENDING_PER_WEBHOOK: integer({ min: 0, max: 1_000_000_000 })({ default: 0 }),
  DISPATCH_INTERVAL: duration({ min: 1_000, max: 24 * HOUR })({ default: 60_000 }),
  DISPATCH_ON_PUBLISH: flag({ default: false }),
  RETRY_INITIAL_DELAY: duration({ min: 1, max: 24 * HOUR })({ default: 60_000 }),
  RETRY_BACKOFF_COEFFICIENT: number({ min: 1, max: 100 })({ default: 5 }),
  HEARTBEAT_TIMEOUT: duration({ min: 1_000, max: HOUR })({ default: 20_000 }),
  DELIVERY_PROCESSES: integer({ min: 0, max: 64 })({ default: undefined }),
  DELIVERY_TIMEOUT: duration({ min: 100, max: 5 * 60_000 })({ default: 15_000 }),
  DELIVERY_MAX_IN_FLIGHT: integer({ min: 1, max: 100_000 })({ default: 4_000 }),
  DELIVERY_MAX_PER_HOST: integer({ min: 1, max: 10_000 })({ default: 400 }),
  DELIVERY_MAX_PER_WEBHOOK: integer({ min: 1, max: 10_000 })({ default: 400 }),
  DELIVERY_FAILING_PERCENT: integer({ min: 1, max: 100 })({ default: 5 }),
  FILTER_TIMEOUT: duration({ min: 10, max: 1_000 })({ default: 50 }),
  DELIVERY_TRACEPARENT: flag({ default: false }),
  DELIVERY_MEMORY: bytes({ min: MIB, max: 64 * 1_024 * MIB })({ default: 64 * MIB }),
  DELIVERY_ALLOWED_NETWORKS: networks({ default: [] }),
  DELIVERY_ALLOWED_HOSTS: hostPatterns({ default: [] }),
  DELIVERY_ALLOWED_PORTS: ports({ default: [] }),
  DELIVERY_PROXY: proxyAddress({ default: undefined }),
  DELIVERY_PROXY_DNS: str<ProxyDns>({ choices: ["local", "remote"], default: "local" }),
  RETENTION_DAYS: integer({ min: 1, max: 3_650 })({ default: 30 }),
  SEARCH_INDEX: flag({ default: true }),
  PAYLOAD_RETENTION_DAYS: integer({ min: 1, max: 3_650 })({ default: undefined }),
  // The audit log's trigger refuses to delete entries of the last seven days.
  AUDIT_RETENTION_DAYS: integer({ min: 7, max: 3_650 })({ default: 365 }),
  SMTP_URL: smtpUrl({ default: undefined }),
  SMTP_FROM: emailAddress({ default: undefined }),
  NOTICE_EMAILS: emailAddresses({ default: [] }),
  NOTICE_EMAIL_INTERVAL: duration({ min: 1_000, max: 24 * HOUR })({ default: HOUR / 4 }),
};

/** Every environment variable the service reads, besides Temporal's, OpenTelemetry's and Node's own. */
export const variableNames = Object.keys(variables);

/**
 * Reads and validates the configuration. Called once, at startup.
 *
 * @throws ConfigError that names every invalid variable. Values of secrets are not repeated
 */
export function readConfig(environment: NodeJS.ProcessEnv): Config {
  // Compose files write an empty value for "not set".
  const set = Object.fromEntries(Object.entries(environment).filter(([, value]) => value !== ""));
  const given = withSecretFiles(set);
  const env = cleanEnv(given, variables, {
    reporter: ({ errors }) => {
      const lines = Object.entries(errors).map(([name, error]) =>
        error instanceof EnvMissingError ? `${name} is missing` : `${name}: ${error?.message}`,
      );
      if (lines.length > 0) throw new ConfigError(lines.join("\n"));
    },
  });
  const external = Boolean(env.TEMPORAL_ADDRESS || env.TEMPORAL_PROFILE || env.TEMPORAL_CONFIG_FILE);
  checkTogether(env, external, unsupportedOtlp(given));
  return {
    role: env.ROLE,
    host: env.HOST,
    httpPort: env.HTTP_PORT,
    grpcPort: env.GRPC_PORT,
    basePath: env.BASE_PATH,
    metrics: { port: env.METRICS_PORT, otlp: sendsByOtlp(given, "METRICS") },
    traces: { otlp: sendsByOtlp(given, "TRACES") },
    tls:
      env.TLS_CERT && env.TLS_KEY
        ? {
            cert: readText("TLS_CERT", env.TLS_CERT),
            key: readText("TLS_KEY", env.TLS_KEY),
            certFile: env.TLS_CERT,
            keyFile: env.TLS_KEY,
          }
        : undefined,
    logLevel: env.LOG_LEVEL,
    accessLog: env.ACCESS_LOG,
    shutdownDelayMs: env.SHUTDOWN_DELAY,
    dataDir: env.DATA_DIR,
    database: {
      url: env.DATABASE_URL,
      directUrl: env.DATABASE_DIRECT_URL,
      readUrl: env.DATABASE_READ_URL,
      poolSize: env.DATABASE_POOL_SIZE,
      preparedStatements: env.DATABASE_PREPARED_STATEMENTS,
    },
    temporal: { external, uiUrl: env.TEMPORAL_UI_URL },
    adminKey: env.ADMIN_KEY,
    secretKey: env.SECRET_KEY,
    previousSecretKeys: env.SECRET_KEY_PREVIOUS,
    searchIndex: env.SEARCH_INDEX,
    limits: {
      requestsPerMinute: env.RATE_LIMIT_PER_MINUTE,
      wrongKeysPerMinute: env.WRONG_KEYS_PER_MINUTE,
      maxWebhooks: env.MAX_WEBHOOKS,
      maxApiKeys: env.MAX_API_KEYS,
      maxInstalledApps: env.MAX_INSTALLED_APPS,
      trustedProxies: env.TRUST_PROXY,
      maxConnections: env.MAX_CONNECTIONS,
      maxConnectionsPerAddress: env.MAX_CONNECTIONS_PER_ADDRESS,
      http2MaxStreams: env.MAX_STREAMS_PER_CONNECTION,
      http2ResetsPerSecond: env.MAX_RESETS_PER_SECOND,
      requestIdleMs: env.REQUEST_IDLE_TIMEOUT,
    },
    dispatch: {
      intervalMs: env.DISPATCH_ON_PUBLISH
        ? Math.min(env.DISPATCH_INTERVAL, MAX_LINGERING_INTERVAL_MS)
        : env.DISPATCH_INTERVAL,
      onPublish: env.DISPATCH_ON_PUBLISH,
      retryInitialDelayMs: env.RETRY_INITIAL_DELAY,
      retryBackoffCoefficient: env.RETRY_BACKOFF_COEFFICIENT,
      heartbeatTimeoutMs: env.HEARTBEAT_TIMEOUT,
      retentionDays: env.RETENTION_DAYS,
      payloadRetentionDays: env.PAYLOAD_RETENTION_DAYS,
      auditRetentionDays: env.AUDIT_RETENTION_DAYS,
      deployment:
        env.TEMPORAL_DEPLOYMENT_NAME && env.TEMPORAL_WORKER_BUILD_ID
          ? { name: env.TEMPORAL_DEPLOYMENT_NAME, buildId: env.TEMPORAL_WORKER_BUILD_ID }
          : undefined,
    },
    delivery: {
      processes: env.DELIVERY_PROCESSES ?? defaultProcesses(env.ROLE),
      timeoutMs: env.DELIVERY_TIMEOUT,
      maxInFlight: env.DELIVERY_MAX_IN_FLIGHT,
      maxPerHost: env.DELIVERY_MAX_PER_HOST,
      maxPerWebhook: env.DELIVERY_MAX_PER_WEBHOOK,
      failingShare: env.DELIVERY_FAILING_PERCENT / 100,
      filterTimeoutMs: env.FILTER_TIMEOUT,
      maxPendingPerWebhook: env.MAX_PENDING_PER_WEBHOOK,
      sendTraceparent: env.DELIVERY_TRACEPARENT,
      memoryBytes: env.DELIVERY_MEMORY,
      allowedNetworks: env.DELIVERY_ALLOWED_NETWORKS,
      allowedHosts: env.DELIVERY_ALLOWED_HOSTS,
      allowedPorts: env.DELIVERY_ALLOWED_PORTS,
      proxy: env.DELIVERY_PROXY,
      proxyDns: env.DELIVERY_PROXY_DNS,
    },
    noticeMail:
      env.SMTP_URL && env.SMTP_FROM && env.NOTICE_EMAILS.length > 0
        ? {
            smtpUrl: env.SMTP_URL,
            from: env.SMTP_FROM,
            to: env.NOTICE_EMAILS,
            intervalMs: env.NOTICE_EMAIL_INTERVAL,
          }
        : undefined,
  };
}

/**
 * Whether a signal is sent by OTLP: where an endpoint is named, or OTEL_METRICS_EXPORTER or OTEL_TRACES_EXPORTER says so.
 * Of the specification's defaults only this one differs: without any of its variables nothing is sent.
 */
function sendsByOtlp(given: NodeJS.ProcessEnv, signal: "METRICS" | "TRACES"): boolean {
  if (given.OTEL_SDK_DISABLED?.toLowerCase() === "true") return false;
  const exporters = given[`OTEL_${signal}_EXPORTER`]?.split(",").map((name) => name.trim());
  if (exporters) return exporters.includes("otlp");
  return Boolean(given.OTEL_EXPORTER_OTLP_ENDPOINT || given[`OTEL_EXPORTER_OTLP_${signal}_ENDPOINT`]);
}

/** The problem with the protocol of OTLP, if it is sent: the exporters are those of `http/protobuf`, the default of the specification. */
function unsupportedOtlp(given: NodeJS.ProcessEnv): string[] {
  return (["METRICS", "TRACES"] as const).flatMap((signal) => {
    const name = [`OTEL_EXPORTER_OTLP_${signal}_PROTOCOL`, "OTEL_EXPORTER_OTLP_PROTOCOL"].find(
      (each) => given[each],
    );
    if (name === undefined || !sendsByOtlp(given, signal) || given[name]?.trim().toLowerCase() !== "grpc")
      return [];
    return [
      `${name}: grpc is not supported; set it to http/protobuf, and OTEL_EXPORTER_OTLP_ENDPOINT to the collector's port for HTTP, such as http://collector:4318`,
    ];
  });
}

/** A worker's process delivers itself; beside an API there is a process for each of up to four other cores. */
const MAX_DEFAULT_PROCESSES = 4;

function defaultProcesses(role: Role): number {
  if (role !== "all") return 1;
  return Math.max(1, Math.min(MAX_DEFAULT_PROCESSES, availableParallelism() - 1));
}

/** Whether the process itself delivers, instead of starting delivery processes. */
export function deliversInItself({ role, delivery }: Pick<Config, "role" | "delivery">): boolean {
  return delivery.processes === 0 || (role === "worker" && delivery.processes === 1);
}

/** Whether the process measures at all. */
export function exportsMetrics({ metrics }: Pick<Config, "metrics">): boolean {
  return metrics.port !== undefined || metrics.otlp;
}
