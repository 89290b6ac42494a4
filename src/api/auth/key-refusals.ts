import { DomainError } from "../../contract/errors.ts";
import type { Allowance } from "../limits/request-limits.ts";

/** The header that carries the API key (contract, section 5). */
export const KEY_HEADER = "X-Service-Key";
/** How a value of the header Authorization starts. */
const SCHEME = /^(?:bearer|basic|apikey|token)\s/i;

/**
 * 401 (contract, section 5, rule 6).
 *
 * @param authorised whether the request has a header Authorization, where many callers send the key first
 */
export function missingKey(authorised = false): DomainError {
  const instead = authorised ? ", not in Authorization, which this service does not read" : "";
  return new DomainError(
    "UNAUTHENTICATED",
    `the header ${KEY_HEADER} is missing: send your API key in it${instead}`,
    { reason: "API_KEY_MISSING" },
  );
}

/** 401 (contract, section 5, rule 6). */
export function unknownKey(secret: string | null | undefined): DomainError {
  // Several headers of one name arrive as one, joined by commas.
  let problem = `the API key in ${KEY_HEADER} is unknown or revoked`;
  if (secret?.includes(",")) problem = `${KEY_HEADER} holds more than one key: send one, once`;
  else if (SCHEME.test(secret ?? ""))
    problem = `${KEY_HEADER} holds the name of a scheme before the key: send the key alone`;
  return new DomainError("UNAUTHENTICATED", problem, { reason: "API_KEY_UNKNOWN" });
}

/** 401, on the settings page. */
export function sessionEnded(): DomainError {
  return new DomainError("UNAUTHENTICATED", "you are not signed in, or no longer: sign in with an API key", {
    reason: "API_KEY_MISSING",
  });
}

/** 429. */
export function tooManyWrongKeys(waitMs: number): DomainError {
  return new DomainError(
    "RESOURCE_EXHAUSTED",
    `too many wrong API keys came from your address, so the one in ${KEY_HEADER} was not looked up: check it and try again in ${seconds(waitMs)}`,
    { reason: "RATE_LIMITED", retryAfterMs: waitMs },
  );
}

/** 429. */
export function tooManyRequests({ limit, resetMs }: Allowance): DomainError {
  return new DomainError(
    "RESOURCE_EXHAUSTED",
    `the API key has made its ${limit} requests of this minute: go on in ${seconds(resetMs)}`,
    { reason: "RATE_LIMITED", retryAfterMs: resetMs },
  );
}

/** 403, for methods that were given no permission by mistake. */
export function forNobody(method: string): DomainError {
  return new DomainError(
    "PERMISSION_DENIED",
    `${method} names no required permission, so no key may call it`,
  );
}

/** 403 (contract, section 5, rule 2). */
export function lacksPermission(permission: string, method: string): DomainError {
  return new DomainError(
    "PERMISSION_DENIED",
    `the API key lacks the permission ${permission}, which ${method} requires`,
    { reason: "PERMISSION_MISSING", metadata: { permission } },
  );
}

function seconds(ms: number): string {
  return `${Math.ceil(ms / 1_000)} s`;
}
