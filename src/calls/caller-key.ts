import type { Owned } from "./scope.ts";

/** A stored key. The secret is stored only as its SHA-256. */
export interface ApiKeyRow extends Owned {
  id: string;
  name: string;
  /** The first characters of the secret, to identify the key: 12, or 4 of an operator-chosen secret. */
  prefix: string;
  /** Numbers of Permission. */
  permissions: number[];
  /** Numbers of WebhookProcess; empty for all types. */
  allowedProcesses: number[];
  created: Date;
  revoked: Date | null;
  /** The last use, accurate to about a minute. */
  lastUsed: Date | null;
  /** The maximum number of its live webhooks; null for no quota. */
  webhookQuota: number | null;
  /** The maximum number of events published with it per second, in all processes; null for no quota. */
  eventsPerSecond: number | null;
  /** The same over all keys of its customer. Read for callers only. */
  customerEventsPerSecond?: number | null;
}
