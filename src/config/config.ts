import { X509Certificate } from "node:crypto";
import { availableParallelism } from "node:os";
import { cleanEnv, EnvMissingError } from "envalid";
import { checkTogether } from "./check-together.ts";
import { ConfigError } from "./config-error.ts";
import { readText, withSecretFiles } from "./secret-files.ts";
import { type Role, variables } from "./variables.ts";

/** The configuration of a process. Times are in milliseconds. */
export type Config = ReturnType<typeof readConfig>;
export type LimitsConfig = Config["limits"];
export type DispatchConfig = Config["dispatch"];
export type DeliveryConfig = Config["delivery"];
export type DeploymentConfig = NonNullable<DispatchConfig["deployment"]>;
export type NoticeMailConfig = NonNullable<Config["noticeMail"]>;

/**
 * The maximum interval between runs whose pumps linger, in milliseconds. A run cannot continue as new while its pumps work, and
 * Temporal terminates one with 51,200 events.
 */
const MAX_LINGERING_INTERVAL_MS = 3_600_000;

/** Every environment variable the service reads, besides Temporal's, OpenTelemetry's and Node's own. */
export const variableNames = Object.keys(variables);

/**
 * Reads and validates the configuration. Called once, at startup.
 *
 * @throws ConfigError that names every invalid variable. Values of secrets are not repeated
 */
export function readConfig(environment: NodeJS.ProcessEnv) {
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
  checkTogether(env, external, [...unsupportedOtlp(given), ...unusableAuthorities(given)]);
  const { TLS_CERT: certFile, TLS_KEY: keyFile, SMTP_URL: smtpUrl, SMTP_FROM: from } = env;
  const { TEMPORAL_DEPLOYMENT_NAME: name, TEMPORAL_WORKER_BUILD_ID: buildId } = env;
  return {
    role: env.ROLE,
    /** The address to listen on. Empty: all addresses, of IPv6 too if the system has it. */
    host: env.HOST,
    httpPort: env.HTTP_PORT,
    grpcPort: env.GRPC_PORT,
    /** The path prefix of the API and the settings page behind a proxy, such as `/webhooks`. Empty for none. */
    basePath: env.BASE_PATH,
    /** `port` is for Prometheus: 0 selects a free one, undefined none. `otlp`: whether metrics are sent by OTLP. */
    metrics: { port: env.METRICS_PORT, otlp: sendsByOtlp(given, "METRICS") },
    traces: { otlp: sendsByOtlp(given, "TRACES") },
    /** The certificate chain and key of the listeners, PEM, and their files, which are read again when they change. */
    tls:
      certFile && keyFile
        ? { cert: readText("TLS_CERT", certFile), key: readText("TLS_KEY", keyFile), certFile, keyFile }
        : undefined,
    logLevel: env.LOG_LEVEL,
    /** A log line for each request. */
    accessLog: env.ACCESS_LOG,
    publicCatalogue: env.PUBLIC_CATALOGUE,
    /** Whether keys of installed apps list and delete webhooks of their app only. The contract gives them all. */
    isolatesApps: env.APP_ISOLATION === "strict",
    /** The time after SIGTERM for which the API still serves while `/readyz` answers 503. */
    shutdownDelayMs: env.SHUTDOWN_DELAY,
    /** The folder for the state of embedded parts. */
    dataDir: env.DATA_DIR,
    database: {
      /** Undefined for the embedded database. */
      url: env.DATABASE_URL,
      /** The address for uses that a pooler in transaction mode does not support. Undefined: same as `url`. */
      directUrl: env.DATABASE_DIRECT_URL,
      /** A streaming replica that lists and exports of deliveries are read from. Undefined: none. */
      readUrl: env.DATABASE_READ_URL,
      poolSize: env.DATABASE_POOL_SIZE,
      /** Whether frequent statements are prepared once per connection. */
      preparedStatements: env.DATABASE_PREPARED_STATEMENTS,
    },
    /** `external`: whether the environment names a Temporal; otherwise it is embedded. */
    temporal: { external, uiUrl: env.TEMPORAL_UI_URL },
    adminKey: env.ADMIN_KEY,
    /** The key that encrypts signing secrets at rest, 32 bytes. */
    secretKey: env.SECRET_KEY,
    /** Previous values of `secretKey`, used for decryption only. */
    previousSecretKeys: env.SECRET_KEY_PREVIOUS,
    /** Whether searchable values of published payloads are stored for searches. */
    searchIndex: env.SEARCH_INDEX,
    eventTypesPath: env.EVENT_TYPES,
    builtInEventTypes: env.BUILT_IN_EVENT_TYPES,
    /** Limits for callers. */
    limits: {
      /** The rate limit per key and process, in requests per minute; 0 for no limit. */
      requestsPerMinute: env.RATE_LIMIT_PER_MINUTE,
      /** The limit of invalid keys per address and process, in attempts per minute; 0 for no limit. */
      wrongKeysPerMinute: env.WRONG_KEYS_PER_MINUTE,
      /** The maximum number of live webhooks. */
      maxWebhooks: env.MAX_WEBHOOKS,
      /** The maximum number of API keys, including revoked ones. */
      maxApiKeys: env.MAX_API_KEYS,
      /** The maximum number of installed apps. */
      maxInstalledApps: env.MAX_INSTALLED_APPS,
      /** Proxies whose X-Forwarded-For, -Proto, -Host, -Port and -Prefix headers are trusted. */
      trustedProxies: env.TRUST_PROXY,
      /** The maximum number of connections per listener. */
      maxConnections: env.MAX_CONNECTIONS,
      /** The maximum number of connections per listener and address, except trusted proxies. */
      maxConnectionsPerAddress: env.MAX_CONNECTIONS_PER_ADDRESS,
      /** The maximum number of concurrent streams per HTTP/2 session. */
      http2MaxStreams: env.MAX_STREAMS_PER_CONNECTION,
      /** The maximum rate of stream resets by the client of an HTTP/2 session, per second. */
      http2ResetsPerSecond: env.MAX_RESETS_PER_SECOND,
      /** The idle timeout of an incomplete request. */
      requestIdleMs: env.REQUEST_IDLE_TIMEOUT,
    },
    /** The schedule of attempts and the retention of deliveries. */
    dispatch: {
      intervalMs: env.DISPATCH_ON_PUBLISH
        ? Math.min(env.DISPATCH_INTERVAL, MAX_LINGERING_INTERVAL_MS)
        : env.DISPATCH_INTERVAL,
      /** Whether published events are dispatched immediately, in addition to the interval. */
      onPublish: env.DISPATCH_ON_PUBLISH,
      /** The delay before the first retry. */
      retryInitialDelayMs: env.RETRY_INITIAL_DELAY,
      /** The factor between consecutive retry delays. */
      retryBackoffCoefficient: env.RETRY_BACKOFF_COEFFICIENT,
      /** The time without heartbeats after which a worker counts as dead. */
      heartbeatTimeoutMs: env.HEARTBEAT_TIMEOUT,
      /** The retention of finished deliveries, their events and idempotency keys, in days. */
      retentionDays: env.RETENTION_DAYS,
      /** The retention of payloads, in days. Undefined: as long as their events. */
      payloadRetentionDays: env.PAYLOAD_RETENTION_DAYS,
      /** The retention of audit entries, in days. */
      auditRetentionDays: env.AUDIT_RETENTION_DAYS,
      /** The version of the workers, in a Worker Deployment of Temporal. Undefined: workers have no version. */
      deployment: name && buildId ? { name, buildId } : undefined,
    },
    /** The delivery engine. */
    delivery: {
      /** The number of delivery processes; 0 delivers in the API's process. */
      processes: env.DELIVERY_PROCESSES ?? defaultProcesses(env.ROLE),
      /** The timeout of an attempt, including the response. */
      timeoutMs: env.DELIVERY_TIMEOUT,
      /** The maximum number of requests in flight per process. */
      maxInFlight: env.DELIVERY_MAX_IN_FLIGHT,
      /** The maximum number of requests in flight per host and per webhook. */
      maxPerHost: env.DELIVERY_MAX_PER_HOST,
      maxPerWebhook: env.DELIVERY_MAX_PER_WEBHOOK,
      /** The share of a busy thread's time for receivers that fail one attempt after another, 0.01 to 1. */
      failingShare: env.DELIVERY_FAILING_PERCENT / 100,
      /** The limit of an evaluation of a filter, in processor time. Also applies to the API. */
      filterTimeoutMs: env.FILTER_TIMEOUT,
      /** The maximum number of pending first attempts per webhook, beyond which deliveries fail; 0 for no limit. */
      maxPendingPerWebhook: env.MAX_PENDING_PER_WEBHOOK,
      /** Whether requests carry the `traceparent` of the event's trace. */
      sendTraceparent: env.DELIVERY_TRACEPARENT,
      /** The maximum size of payloads held by a process, in bytes. */
      memoryBytes: env.DELIVERY_MEMORY,
      /** Non-public networks to which deliveries are allowed. */
      allowedNetworks: env.DELIVERY_ALLOWED_NETWORKS,
      /** The same for webhooks of customers, whatever `allowedNetworks` says. */
      customerNetworks: env.CUSTOMER_ALLOWED_NETWORKS,
      /** Names of receivers with private addresses to which deliveries are allowed. `*.` stands for all names below. */
      allowedHosts: env.DELIVERY_ALLOWED_HOSTS,
      /** Blocked ports to which deliveries are allowed. */
      allowedPorts: env.DELIVERY_ALLOWED_PORTS,
      /** The proxy of all connections to receivers and token endpoints. Undefined to connect directly. */
      proxy: env.DELIVERY_PROXY,
      proxyDns: env.DELIVERY_PROXY_DNS,
    },
    /** The e-mails of notices. Undefined: none are sent. `intervalMs` is the minimum interval between them. */
    noticeMail:
      smtpUrl && from && env.NOTICE_EMAILS.length > 0
        ? { smtpUrl, from, to: env.NOTICE_EMAILS, intervalMs: env.NOTICE_EMAIL_INTERVAL }
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

/** Says what to change if OTLP is used over gRPC. The exporters support `http/protobuf`, the default of the specification. */
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

/**
 * Says what to change if Node cannot use the authorities of NODE_EXTRA_CA_CERTS. Node itself only prints a warning, and all deliveries
 * to receivers with certificates of these authorities would fail.
 */
function unusableAuthorities({ NODE_EXTRA_CA_CERTS: path }: NodeJS.ProcessEnv): string[] {
  if (!path) return [];
  try {
    new X509Certificate(readText("NODE_EXTRA_CA_CERTS", path));
    return [];
  } catch (error) {
    if (error instanceof ConfigError) return [error.message];
    return [
      `NODE_EXTRA_CA_CERTS: the file ${path} holds no certificate; name a file with certificates in PEM`,
    ];
  }
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
