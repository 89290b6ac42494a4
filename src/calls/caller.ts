import { type ContextValues, createContextKey, type HandlerContext } from "@connectrpc/connect";
import type { ApiKeyRow } from "./caller-key.ts";

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

/** The authenticated key of a request. The gate ensures that there is one. */
export function callerOf(context: HandlerContext): ApiKeyRow {
  return identityOf(context).key;
}

/** The key in a call's context values; null for public methods and before authentication. */
export function callerIn(values: ContextValues): ApiKeyRow | null {
  return identityIn(values)?.key ?? null;
}
