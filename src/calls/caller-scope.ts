import type { HandlerContext } from "@connectrpc/connect";
import { DomainError } from "../contract/errors.ts";
import { callerOf } from "./caller.ts";
import { type Scope, scopeOf } from "./scope.ts";

/** The data that the caller of a method can access. */
export function callerScope(context: HandlerContext): Scope {
  return scopeOf(callerOf(context));
}

/**
 * Rejects keys of installed apps, for methods that concern the whole service.
 *
 * @throws DomainError PERMISSION_DENIED
 */
export function assertServiceWide(context: HandlerContext): void {
  if (callerScope(context) === "everything") return;
  throw new DomainError(
    "PERMISSION_DENIED",
    `${context.method.name} concerns the whole service, but the API key belongs to an installed app; use a key without an app`,
  );
}
