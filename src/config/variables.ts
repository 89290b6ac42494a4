import { type CleanedEnv, str } from "envalid";
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

/** Who looks up the host names of receivers: `local` is this service, `remote` the outbound proxy. */
type ProxyDns = "local" | "remote";

/** What keys of installed apps list and delete over REST: all webhooks of their instance, as the contract says, or those of their app. */
type AppIsolation = "contract" | "strict";

const HOUR = 3_600_000;
const MIB = 2 ** 20;

/** The variables that the service reads, with their forms, limits and defaults. */
export const variables = {
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
  PUBLIC_CATALOGUE: flag({ default: false }),
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
  MAX_WEBHOOKS: integer({ min: 1, max: 10_000_000 })({ default: 10_000 }),
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
  CUSTOMER_ALLOWED_NETWORKS: networks({ default: [] }),
  DELIVERY_PROXY: proxyAddress({ default: undefined }),
  DELIVERY_PROXY_DNS: choice<ProxyDns>(["local", "remote"])({ default: "local" }),
  APP_ISOLATION: choice<AppIsolation>(["contract", "strict"])({ default: "contract" }),
  EVENT_TYPES: str({ default: undefined }),
  BUILT_IN_EVENT_TYPES: flag({ default: true }),
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

/** The checked values of the variables. */
export type Environment = CleanedEnv<typeof variables>;
