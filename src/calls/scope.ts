import type { Bindings } from "../lib/pg/index.ts";

/** The data that a key of an installed app can access, and the rights that it can grant. */
export interface AppScope {
  readonly installedAppId: string;
  /** Numbers of WebhookProcess; empty for all types. */
  readonly processes: readonly number[];
  /** Numbers of Permission. */
  readonly permissions: readonly number[];
}

/**
 * The data that a caller can access outside the REST contract. A key of an installed app can access its app's
 * webhooks for the event types that it may subscribe to. A key without an app can access everything.
 */
export type Scope = "everything" | AppScope;

/** The attributes of a key that determine its scope. */
interface ScopedKey {
  installedAppId: string | null;
  allowedProcesses: readonly number[];
  permissions: readonly number[];
}

/** The scope of a key's calls. */
export function scopeOf({ installedAppId, allowedProcesses, permissions }: ScopedKey): Scope {
  return installedAppId === null
    ? "everything"
    : { installedAppId, processes: allowedProcesses, permissions };
}

/** A name for the data in a scope: the same for two keys that can access the same webhooks. */
export function scopeName(scope: Scope): string {
  if (scope === "everything") return scope;
  return `${scope.installedAppId} ${[...new Set(scope.processes)].sort((a, b) => a - b).join()}`;
}

/** Whether a webhook is in the scope. */
export function reachesWebhook(
  scope: Scope,
  webhook: { installedAppId: string | null; process: number },
): boolean {
  if (scope === "everything") return true;
  if (webhook.installedAppId !== scope.installedAppId) return false;
  return scope.processes.length === 0 || scope.processes.includes(webhook.process);
}

/** A condition of a query and the values of its `:name` placeholders. */
export interface Condition {
  sql: string;
  bindings: Bindings;
}

/** `reachesWebhook` in SQL. @param webhook the table's name in the query */
export function webhookIn(scope: Scope, webhook: string): Condition {
  if (scope === "everything") return { sql: "true", bindings: {} };
  const { installedAppId: scopeApp, processes: scopeProcesses } = scope;
  const ofApp = `${webhook}.installed_app_id = :scopeApp::uuid`;
  if (scopeProcesses.length === 0) return { sql: ofApp, bindings: { scopeApp } };
  return {
    sql: `${ofApp} and ${webhook}.process = any(:scopeProcesses::int[])`,
    bindings: { scopeApp, scopeProcesses },
  };
}

/** Whether a key is in the scope: one of its installed app. */
export function reachesKey(scope: Scope, key: { installedAppId: string | null }): boolean {
  return scope === "everything" || key.installedAppId === scope.installedAppId;
}

/** `reachesKey` in SQL. @param key the table's name in the query */
export function keyIn(scope: Scope, key: string): Condition {
  if (scope === "everything") return { sql: "true", bindings: {} };
  return {
    sql: `${key}.installed_app_id = :scopeApp::uuid`,
    bindings: { scopeApp: scope.installedAppId },
  };
}
