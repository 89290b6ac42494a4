import type { Knex } from "knex";

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

interface WebhooksTable {
  id: bigint;
  process: number;
  url: string;
  target_url: string;
  api_key_id: string;
  installed_app_id: string | null;
  secret: Buffer;
  /** Newest first. */
  old_secrets: Buffer[];
  old_secrets_expire: Date[];
  /** Newest first. */
  key_pairs: Buffer[];
  key_pairs_expire: (Date | null)[];
  created: Date;
  modified: Date;
  paused: Date | null;
  rate_limit: number | null;
  rate_tokens: number;
  rate_at: Date;
  deleted: Date | null;
  emptied: Date | null;
  revision: bigint;
  created_revision: bigint;
  deleted_revision: bigint | null;
}

/**
 * A table whose rows are inserted with these columns at least, and the others by default. Updates may take expressions,
 * such as the database's time.
 */
type Table<Row, Needed extends keyof Row> = Knex.CompositeTableType<
  Row,
  Pick<Row, Needed> & Partial<Omit<Row, Needed>>,
  { [Column in keyof Row]?: Row[Column] | Knex.Raw }
>;

declare module "knex/types/tables.js" {
  interface Tables {
    installed_apps: Table<InstalledAppsTable, "id" | "name">;
    api_keys: Table<ApiKeysTable, "id" | "name" | "prefix" | "secret_sha256" | "permissions">;
    api_key_old_secrets: Table<ApiKeyOldSecretsTable, "secret_sha256" | "api_key_id" | "expires">;
    event_quotas: Table<EventQuotasTable, keyof EventQuotasTable>;
    sessions: Table<SessionsTable, "token_sha256" | "api_key_id" | "key_secret_sha256" | "expires">;
    settings: Table<SettingsTable, "name" | "value">;
    webhooks: Table<WebhooksTable, "process" | "url" | "target_url" | "api_key_id" | "secret">;
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
