import type { HandlerContext } from "@connectrpc/connect";
import { DomainError } from "../contract/errors.ts";
import { callerOf } from "./caller.ts";
import { customerScope, ownerName, type Scope, scopeOf } from "./scope.ts";
import { assertCustomer } from "./user-id.ts";

/**
 * The data that the caller of a method can access.
 *
 * @param customer only that of this customer. Undefined for no restriction
 * @throws DomainError INVALID_ARGUMENT if no customer can have it; PERMISSION_DENIED if the key cannot access the customer
 */
export function callerScope(context: HandlerContext, customer?: string): Scope {
  const scope = scopeOf(callerOf(context));
  if (customer === undefined) return scope;
  assertCustomer(customer);
  if (scope === "everything") return customerScope(customer);
  if (scope.customer === customer) return scope;
  // The same for customers that exist and for others.
  throw new DomainError(
    "NOT_ALLOWED",
    scope.customer === null
      ? "customer: the API key belongs to an installed app, and cannot access customers; leave it out, or use a key without an app"
      : "customer: the API key belongs to another customer; leave it out",
  );
}

/**
 * Rejects keys of installed apps and of customers, for methods that concern the whole service.
 *
 * @throws DomainError PERMISSION_DENIED
 */
export function assertServiceWide(context: HandlerContext): void {
  const scope = callerScope(context);
  if (scope === "everything") return;
  throw new DomainError(
    "NOT_ALLOWED",
    `${context.method.name} concerns the whole service, but the API key belongs to ${ownerName(scope)}; use a key without ${scope.customer === null ? "an app" : "a customer"}`,
  );
}
