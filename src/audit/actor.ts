import type { HandlerContext } from "@connectrpc/connect";
import { addressOf, identityOf, plainAddress } from "../calls/index.ts";
import type { Db } from "../lib/pg/index.ts";
import { type Actor, audited, type Recorder } from "./audit-log.ts";

/** The caller of a method, for the audit log. */
export function actorOf(handler: HandlerContext): Actor {
  const { key, sessionId } = identityOf(handler);
  return {
    apiKeyId: key.id,
    apiKeyName: key.name,
    customer: key.customer,
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
