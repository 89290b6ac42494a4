import type { AuditRecord } from "../audit/index.ts";
import type { ApiKeyRow, Scope } from "../calls/index.ts";
import type { Db } from "../lib/pg/index.ts";

/** The fate of a revoked key's webhooks: transferred to another key, or deleted. */
export type WebhooksFate = { transferTo: string } | "delete";

/**
 * Revokes a key, transfers or deletes its webhooks, and ends what it has started, in the given transaction. Returns the numbers of
 * webhooks, and the entries for the audit log. Throws DomainError as `keyRevocation` says.
 */
export type RevokeKey = (
  trx: Db,
  scope: Scope,
  id: string,
  fate: WebhooksFate,
) => Promise<{ key: ApiKeyRow; transferred: number; deleted: number; entries: AuditRecord[] }>;
