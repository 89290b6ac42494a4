import { randomUUID } from "node:crypto";
import { Code, ConnectError } from "@connectrpc/connect";
import type { Logger } from "pino";
import { isTransient } from "../db/faults.ts";
import { DomainError, type DomainErrorCode } from "../domain-error.ts";
import { InvalidTargetError } from "../target-rules.ts";
import type { FieldViolation } from "./required-fields.ts";

const CODES: Record<DomainErrorCode, Code> = {
  INVALID_ARGUMENT: Code.InvalidArgument,
  NOT_FOUND: Code.NotFound,
  ALREADY_EXISTS: Code.AlreadyExists,
  FAILED_PRECONDITION: Code.FailedPrecondition,
  UNAUTHENTICATED: Code.Unauthenticated,
  PERMISSION_DENIED: Code.PermissionDenied,
};

/** The one error for what is wrong with a request's fields. */
export function invalidFields(violations: readonly FieldViolation[]): ConnectError {
  const text = violations.map(({ field, description }) => `${field} ${description}`).join("; ");
  return new ConnectError(text, Code.InvalidArgument);
}

/**
 * What the caller is told of a fault. Refusals are told as they are; our own faults are logged here, once and with
 * their cause, and told as a reference, so that no SQL, secret or stack leaves the service.
 *
 * @param method what was called, for the log
 */
export function toConnectError(error: unknown, log: Logger, method: string): ConnectError {
  if (error instanceof ConnectError) return error;
  if (error instanceof DomainError) return new ConnectError(error.message, CODES[error.code]);
  if (error instanceof InvalidTargetError) return new ConnectError(error.message, Code.InvalidArgument);
  if (isTransient(error)) {
    log.warn({ err: error, method }, "the database is away");
    return new ConnectError("the database is away; try again", Code.Unavailable);
  }
  const reference = randomUUID();
  log.error({ err: error, method, reference }, "a request failed by our own fault");
  return new ConnectError(`internal error, in the log under ${reference}`, Code.Internal);
}
