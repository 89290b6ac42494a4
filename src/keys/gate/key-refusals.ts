import { DomainError } from "../../contract/errors.ts";
import type { Allowance } from "./request-limits.ts";

/** The header that carries the API key (contract, section 5). */
export const KEY_HEADER = "X-Service-Key";
/** Matches an authentication scheme at the start of an Authorization value. */
const SCHEME = /^(?:bearer|basic|apikey|token)\s/i;

/**
 * 401 (contract, section 5, rule 6).
 *
 * @param authorised whether the request has an Authorization header, a common mistake
 */
export function missingKey(authorised = false): DomainError {
  const instead = authorised ? ", not in Authorization, which this service does not read" : "";
  return new DomainError(
    "API_KEY_MISSING",
    `the header ${KEY_HEADER} is missing: send your API key in it${instead}`,
  );
}

/** 401 (contract, section 5, rule 6). */
export function unknownKey(secret: string | null | undefined): DomainError {
  // Node joins repeated headers with commas.
  let problem = `the API key in ${KEY_HEADER} is unknown or revoked`;
  if (secret?.includes(",")) problem = `${KEY_HEADER} contains more than one key; send exactly one`;
  else if (SCHEME.test(secret ?? ""))
    problem = `${KEY_HEADER} contains a scheme before the key; send only the key`;
  return new DomainError("API_KEY_UNKNOWN", problem);
}

/** 401, in the admin UI. */
export function sessionEnded(): DomainError {
  return new DomainError("API_KEY_MISSING", "your session has expired; sign in with an API key");
}

/** 429. */
export function tooManyWrongKeys(waitMs: number): DomainError {
  return new DomainError(
    "RATE_LIMITED",
    `too many wrong API keys came from your address, so your key was not checked; verify it and retry in ${seconds(waitMs)}`,
    { retryAfterMs: waitMs },
  );
}

/** 429, in the admin UI. */
export function tooManyUnknownSessions(waitMs: number): DomainError {
  return new DomainError(
    "RATE_LIMITED",
    `too many ended or unknown sessions came from your address, so yours was not looked up; sign in with an API key, or retry in ${seconds(waitMs)}`,
    { retryAfterMs: waitMs },
  );
}

/** 429. */
export function tooManyRequests({ limit, resetMs }: Allowance): DomainError {
  return new DomainError(
    "RATE_LIMITED",
    `the API key has used its ${limit} requests of this minute; retry in ${seconds(resetMs)}`,
    { retryAfterMs: resetMs },
  );
}

/** 403, for methods without a required permission. */
export function forNobody(method: string): DomainError {
  return new DomainError("NOT_ALLOWED", `${method} names no required permission, so no key may call it`);
}

/** 403 (contract, section 5, rule 2). */
export function lacksPermission(permission: string, method: string): DomainError {
  return new DomainError(
    "PERMISSION_MISSING",
    `the API key lacks the permission ${permission}, which ${method} requires`,
    { metadata: { permission } },
  );
}

function seconds(ms: number): string {
  return `${Math.ceil(ms / 1_000)} s`;
}
