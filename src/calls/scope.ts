import type { Bindings } from "../lib/pg/index.ts";

/** The data that a key of a customer or of an installed app can access, and the rights that it can grant. */
export interface LimitedScope {
  /** The user_id of the customer; null for the operator's webhooks and keys. */
  readonly customer: string | null;
  /** Null if the scope is that of a customer, with or without an app. */
  readonly installedAppId: string | null;
  /** Numbers of WebhookProcess; empty for all types. */
  readonly processes: readonly number[];
  /** Numbers of Permission. */
  readonly permissions: readonly number[];
}

/**
 * The data that a caller can access outside the REST contract. A key of the operator without an app can access everything. A key of a
 * customer can access its customer's webhooks, a key of an installed app its app's webhooks, and a key of both what belongs to both; each
 * for the event types that it may subscribe to.
 */
export type Scope = "everything" | LimitedScope;

/** The scope of a key's calls. */
export function scopeOf(key: Owned & Record<"allowedProcesses" | "permissions", readonly number[]>): Scope {
  const { customer, installedAppId, allowedProcesses: processes, permissions } = key;
  if (customer === null && installedAppId === null) return "everything";
  return { customer, installedAppId, processes, permissions };
}

/** The data of one customer. */
export function customerScope(customer: string): LimitedScope {
  return { customer, installedAppId: null, processes: [], permissions: [] };
}

/** Whom the keys of a scope belong to, for errors. */
export function ownerName({ customer }: LimitedScope): "a customer" | "an installed app" {
  return customer === null ? "an installed app" : "a customer";
}

/** A name for the data in a scope: the same for two keys that can access the same webhooks. */
export function scopeName(scope: Scope): string {
  if (scope === "everything") return scope;
  const { customer, installedAppId, processes } = scope;
  return JSON.stringify([customer, installedAppId, [...new Set(processes)].sort((a, b) => a - b)]);
}

/** The owner of a row, such as a key or a webhook. */
export interface Owned {
  /** The user_id of the customer; null for the operator. */
  customer: string | null;
  /** The id of the installed app; null for none. */
  installedAppId: string | null;
}

/** Whether a key, or anything else with an owner, is in the scope, whatever its event types. */
export function reachesKey(scope: Scope, { customer, installedAppId }: Owned): boolean {
  if (scope === "everything") return true;
  if (customer !== scope.customer) return false;
  return scope.installedAppId === null || installedAppId === scope.installedAppId;
}

/** Whether a webhook is in the scope. */
export function reachesWebhook(scope: Scope, webhook: Owned & { process: number }): boolean {
  if (!reachesKey(scope, webhook)) return false;
  return scope === "everything" || scope.processes.length === 0 || scope.processes.includes(webhook.process);
}

/** A condition of a query and the values of its `:name` placeholders. */
export interface Condition {
  sql: string;
  bindings: Bindings;
}

/** The names of a table's columns with the customer and the installed app. */
const OWNER_COLUMNS = { customer: "customer", app: "installed_app_id" };

/** Whether a row belongs to the instance of a customer; null for the operator's. @param row the table's name in the query */
export function instanceIn(customer: string | null, row: string, column = OWNER_COLUMNS.customer): Condition {
  return customer === null
    ? { sql: `${row}.${column} is null`, bindings: {} }
    : { sql: `${row}.${column} = :scopeCustomer`, bindings: { scopeCustomer: customer } };
}

/**
 * Whether a row belongs to the customer and the app of the scope, whatever its event type.
 *
 * @param row the table's name in the query
 * @param columns its columns with the customer and the id of the app
 */
export function ownedIn(scope: Scope, row: string, columns = OWNER_COLUMNS): Condition {
  if (scope === "everything") return { sql: "true", bindings: {} };
  const { customer, installedAppId: scopeApp } = scope;
  const { sql, bindings } = instanceIn(customer, row, columns.customer);
  if (scopeApp === null) return { sql, bindings };
  return { sql: `${sql} and ${row}.${columns.app} = :scopeApp::uuid`, bindings: { ...bindings, scopeApp } };
}

/** `reachesWebhook` in SQL. @param webhook the table's name in the query */
export function webhookIn(scope: Scope, webhook: string): Condition {
  const { sql, bindings } = ownedIn(scope, webhook);
  if (scope === "everything" || scope.processes.length === 0) return { sql, bindings };
  return {
    sql: `${sql} and ${webhook}.process = any(:scopeProcesses::int[])`,
    bindings: { ...bindings, scopeProcesses: scope.processes },
  };
}
