import { type LimitedScope, ownerName, type Scope } from "../calls/index.ts";
import { DomainError } from "../contract/errors.ts";
import { permissionName } from "../contract/permissions.ts";

/**
 * Rejects a key of an installed app or a customer that would create, rotate, revoke or remove a key with more rights than its own:
 * the new secret would grant them.
 *
 * @param what names the other key in the error
 * @throws DomainError PERMISSION_DENIED
 */
export function assertNoMoreRights(
  scope: Scope,
  rights: { permissions: readonly number[]; allowedProcesses: readonly number[] },
  what: string,
): void {
  if (scope === "everything") return;
  const permissions = rights.permissions.filter((each) => !scope.permissions.includes(each));
  if (permissions.length > 0) {
    throw moreRights(
      `${what} has ${permissions.map(permissionName).join(", ")}, which your key lacks`,
      scope.permissions.map(permissionName).join(", "),
      scope,
    );
  }
  if (scope.processes.length === 0) return;
  const { allowedProcesses: processes } = rights;
  if (processes.length > 0 && processes.every((process) => scope.processes.includes(process))) return;
  throw moreRights(
    `${what} may subscribe to more event types than your key`,
    `allowed_processes of ${scope.processes.join(", ")}`,
    scope,
  );
}

function moreRights(problem: string, allowed: string, scope: LimitedScope): DomainError {
  return new DomainError(
    "NOT_ALLOWED",
    `${problem}; a key of ${ownerName(scope)} manages keys with at most its own rights (${allowed}): use a key without ${scope.customer === null ? "an app" : "a customer"}`,
  );
}
