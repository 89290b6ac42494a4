import type { Knex } from "knex";
import type { SettingColumns } from "../contract/webhooks/settings.ts";

/**
 * Rows of the tables that the query builder reads and writes, as the migrations made them. Tables that only raw
 * statements use are not listed.
 */
interface InstalledAppsTable {
  id: string;
  name: string;
  created: Date;
}

interface ApiKeysTable {
  id: string;
  name: string;
  prefix: string;
  secret_sha256: Buffer;
  /** Numbers of Permission. */
  permissions: number[];
  /** Numbers of WebhookProcess; empty for all types. */
  allowed_processes: number[];
  customer: string | null;
  installed_app_id: string | null;
  created: Date;
  revoked: Date | null;
  last_used: Date | null;
  webhook_quota: number | null;
  events_per_second: number | null;
}

interface ApiKeyOldSecretsTable {
  secret_sha256: Buffer;
  api_key_id: string;
  expires: Date;
}

interface EventQuotasTable {
  api_key_id: string;
  tokens: number;
  at: Date;
  rate: number;
  requested: number;
  granted: number;
}

interface SessionsTable {
  token_sha256: Buffer;
  api_key_id: string;
  /** The hash of the key's secret at sign-in. */
  key_secret_sha256: Buffer;
  /** The hash of the secret that signed in. */
  secret_sha256: Buffer | null;
  started: Date;
  expires: Date;
}

interface SettingsTable {
  name: string;
  value: string;
}

interface WebhooksTable extends SettingColumns {
  id: bigint;
  process: number;
  url: string;
  target_url: string;
  api_key_id: string;
  customer: string | null;
  installed_app_id: string | null;
  endpoint_id: string | null;
  secret: Buffer;
  /** Newest first. */
  old_secrets: Buffer[];
  old_secrets_expire: Date[];
  /** Newest first. */
  key_pairs: Buffer[];
  key_pairs_expire: (Date | null)[];
  request_settings: Buffer | null;
  filter: string | null;
  created: Date;
  modified: Date;
  paused: Date | null;
  customer_paused: boolean;
  rate_tokens: number;
  rate_at: Date;
  held_until: Date | null;
  receiver_rate: number | null;
  paced_from: Date | null;
  deleted: Date | null;
  emptied: Date | null;
  test_delivery: string | null;
  probe_attempts: number | null;
  revision: bigint;
  created_revision: bigint;
  deleted_revision: bigint | null;
}

interface CustomersTable {
  id: string;
  display_name: string | null;
  metadata: Record<string, string>;
  webhook_quota: number | null;
  events_per_second: number | null;
  pending_quota: number | null;
  created: Date;
  paused: Date | null;
  erasure_started: Date | null;
  erasure_finished: Date | null;
  erasure_actor: unknown;
  erasure_look: string | null;
  erasure_looked: Date | null;
  erased_webhooks: bigint;
  erased_keys: bigint;
  erased_payloads: bigint;
  erased_deliveries: bigint;
}

interface InstancesTable {
  id: number;
  name: string;
  release: string;
  role: string;
  features: string[];
  lease_until: Date;
}

interface RequiredFeaturesTable {
  name: string;
  since: Date;
}

interface CatalogueFilesTable {
  path: string;
  descriptor: Buffer;
}

interface EventTypesTable {
  process: number;
  name: string;
  alias: string | null;
  message: string;
  deprecated: Date | null;
}

interface EventTypeRegistrationsTable {
  revision: bigint;
  registered: Date;
  set_sha256: Buffer | null;
}

interface EndpointsTable {
  id: string;
  created: Date;
  rate_tokens: number;
  rate_at: Date;
  served: bigint | null;
}

interface WebhookOldUrlsTable {
  webhook_id: bigint;
  until: Date;
  url: string;
}

interface WebhookBreakersTable {
  webhook_id: bigint;
  max_failures: number;
  failing_s: number;
  probe_s: number;
  disable_s: number;
  disable_on_gone: boolean;
  resend: boolean;
  state: "closed" | "open" | "disabled";
  since: Date;
  reason: string | null;
  failures: number;
  failing_since: Date | null;
  outage_since: Date | null;
  succeeded: boolean;
  gone: boolean;
  probes: number;
  next_probe: Date | null;
  resend_from: Date | null;
  resend_until: Date | null;
  resend_after: string | null;
  due: Date | null;
}

interface ProcessesTable {
  process: number;
  revision: bigint;
  live: number;
}

interface ReplaysTable {
  id: string;
  api_key_id: string;
  idempotency_key: string | null;
  customer: string | null;
  installed_app_id: string | null;
  processes: number[];
  kind: "resend" | "backfill";
  filter: unknown;
  from_id: string;
  to_id: string;
  created: Date;
  paused: Date | null;
  ended: Date | null;
  cancelled: boolean;
  listed_to: bigint | null;
  active: Date | null;
  queued: bigint;
  skipped: bigint;
  webhooks: number;
  workflow_id: string | null;
  run_id: string | null;
}

/**
 * A table whose rows are inserted with these columns at least, and the others by default. Values may be expressions, such as
 * the database's time.
 */
type Table<Row, Needed extends keyof Row> = Knex.CompositeTableType<
  Row,
  Pick<Values<Row>, Needed> & Partial<Omit<Values<Row>, Needed>>,
  Partial<Values<Row>>
>;

type Values<Row> = { [Column in keyof Row]: Row[Column] | Knex.Raw };

declare module "knex/types/tables.js" {
  interface Tables {
    installed_apps: Table<InstalledAppsTable, "id" | "name">;
    api_keys: Table<ApiKeysTable, "id" | "name" | "prefix" | "secret_sha256" | "permissions">;
    api_key_old_secrets: Table<ApiKeyOldSecretsTable, "secret_sha256" | "api_key_id" | "expires">;
    event_quotas: Table<EventQuotasTable, keyof EventQuotasTable>;
    sessions: Table<SessionsTable, "token_sha256" | "api_key_id" | "key_secret_sha256" | "expires">;
    customers: Table<CustomersTable, "id">;
    settings: Table<SettingsTable, "name" | "value">;
    webhooks: Table<WebhooksTable, "process" | "url" | "target_url" | "api_key_id" | "secret">;
    endpoints: Table<EndpointsTable, never>;
    instances: Table<InstancesTable, "name" | "release" | "role" | "features" | "lease_until">;
    required_features: Table<RequiredFeaturesTable, "name">;
    catalogue_files: Table<CatalogueFilesTable, keyof CatalogueFilesTable>;
    event_types: Table<EventTypesTable, "process" | "name" | "message">;
    event_type_registrations: Table<EventTypeRegistrationsTable, "revision">;
    webhook_old_urls: Table<WebhookOldUrlsTable, keyof WebhookOldUrlsTable>;
    webhook_breakers: Table<
      WebhookBreakersTable,
      "webhook_id" | "max_failures" | "failing_s" | "probe_s" | "disable_s" | "disable_on_gone" | "resend"
    >;
    processes: Table<ProcessesTable, keyof ProcessesTable>;
    replays: Table<ReplaysTable, "api_key_id" | "processes" | "kind" | "filter" | "from_id" | "to_id">;
  }
}

/**
 * The columns of a row under the names of its properties, for `select` and `returning`.
 *
 * @param columns the column of each property
 */
export function aliased<Row>(columns: Readonly<Record<keyof Row & string, string>>): string[] {
  return Object.entries<string>(columns).map(([property, column]) => `${column} as ${property}`);
}
