import { type ContextValues, createContextKey, type HandlerContext } from "@connectrpc/connect";
import { type Actor, audited, type Recorder } from "../../db/audit/audit-log.ts";
import type { Db } from "../../db/database.ts";
import type { ApiKeyRow } from "../../db/keys/api-keys.ts";
import { addressOf, plainAddress } from "./client-address.ts";

/** An authenticated caller. */
export interface Identity {
  key: ApiKeyRow;
  /** Identifies the session of the settings page; null for a call with a key. */
  sessionId: string | null;
}

const callerIdentity = createContextKey<Identity | null>(null, { description: "who the caller is" });

/** Sets the authenticated caller of a request. */
export function setIdentity(handler: HandlerContext, identity: Identity | null): void {
  handler.values.set(callerIdentity, identity);
}

/** The caller in a call's context values; null for public methods and before authentication. */
export function identityIn(values: ContextValues): Identity | null {
  return values.get(callerIdentity);
}

/** The authenticated caller of a request. The gate ensures that there is one. */
export function identityOf(handler: HandlerContext): Identity {
  const identity = identityIn(handler.values);
  if (!identity) throw new Error(`${handler.method.name} was called without passing the gate`);
  return identity;
}

/** The caller of a method, for the audit log. */
export function actorOf(handler: HandlerContext): Actor {
  const { key, sessionId } = identityOf(handler);
  return {
    apiKeyId: key.id,
    apiKeyName: key.name,
    installedAppId: key.installedAppId,
    sessionId,
    address: plainAddress(addressOf(handler)),
  };
}

/** Runs a caller's change and writes its audit entries in one transaction. */
export function auditedCall<T>(
  db: Db,
  handler: HandlerContext,
  change: (trx: Db, record: Recorder) => Promise<T>,
): Promise<T> {
  return audited(db, actorOf(handler), change);
}
