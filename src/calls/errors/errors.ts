import { randomUUID } from "node:crypto";
import type { DescMessage, MessageInitShape } from "@bufbuild/protobuf";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError } from "@connectrpc/connect";
import type { Logger } from "pino";
import {
  BadRequestSchema,
  ErrorInfoSchema,
  RetryInfoSchema,
} from "../../../gen/google/rpc/error_details_pb.ts";
import {
  DEFAULT_REASONS,
  DomainError,
  ERROR_DOMAIN,
  type ErrorReason,
  type FieldViolation,
  STATUS_CODES,
  type StatusName,
} from "../../contract/errors.ts";
import { InvalidTargetError } from "../../contract/target-rules.ts";
import { isTransient } from "../../lib/pg/index.ts";
import { hideSecrets } from "./hidden-secrets.ts";
import { plainJsonMessage, withJsonNames } from "./json-messages.ts";

const STATUS_NAMES = new Map<number, StatusName>(
  Object.entries(STATUS_CODES).map(([name, number]) => [number, name as StatusName]),
);
/** The retry delay for callers while the database is unavailable, in milliseconds. */
const RETRY_AWAY_MS = 1_000;

// Errors repeat what the caller sent, and gRPC sends them in trailers: the message percent-encoded, and again with the
// details in base64. HTTP/2 resets a stream whose trailers are longer than 64 KiB, and some clients accept no more than
// 8 KiB. The limits below keep all trailers of an error under 8 KiB.

/** The maximum length of an error's message, in characters. */
const MAX_MESSAGE_LENGTH = 1_000;
/** The maximum size of an error's message in trailers, in bytes. 1,000 characters of ASCII take 2,333. */
const MAX_MESSAGE_BYTES = 2_500;
/** The size in trailers of a character outside printable ASCII, in bytes per byte of its UTF-8. */
const ENCODED_BYTES = 3 + 4 / 3;
/** The maximum length of the description of one wrong field, in characters. */
const MAX_VIOLATION_LENGTH = 500;
/** The maximum number of wrong fields that one error names. */
const MAX_VIOLATIONS = 20;
/** The maximum length of one value of the metadata, in characters. */
const MAX_METADATA_LENGTH = 1_000;
/** The maximum size of the details of an error, in bytes of UTF-8. */
const MAX_DETAILS_BYTES = 3_000;

/** The error for invalid fields of a request. */
export function invalidFields(violations: readonly FieldViolation[]): DomainError {
  const text = violations.map(({ field, description }) => `${field} ${description}`).join("; ");
  return new DomainError("FIELDS_INVALID", text, { violations });
}

/** The error for one invalid field of a request. @param description to read after the field's name */
export function invalidField(field: string, description: string): DomainError {
  return invalidFields([{ field, description }]);
}

/** The error for a resource whose state does not allow an operation. @param message also says what to do */
export function stateNotFit(message: string): DomainError {
  return new DomainError("STATE_NOT_FIT", message);
}

/**
 * Converts an error for the caller. Errors meant for callers are passed on. Internal errors are logged here once,
 * with their cause, and replaced by a reference id, so that no SQL, secret or stack trace leaves the service.
 *
 * Each error contains a google.rpc.ErrorInfo with a reason for programs; a BadRequest for invalid fields; and a
 * RetryInfo if the call may be retried, with `Retry-After` in whole seconds in the metadata.
 *
 * @param method the called method, for the log
 * @param request the type of its request, for errors of the library; undefined if it has read the request
 */
export function toConnectError(
  error: unknown,
  log: Logger,
  method: string,
  request?: DescMessage,
): ConnectError {
  if (error instanceof ConnectError) return withReason(error, request);
  if (error instanceof DomainError) return refusal(error);
  if (error instanceof InvalidTargetError) {
    const violation = { field: "url", description: error.message.replace(/^url:? /, "") };
    return refusal(
      new DomainError("URL_NOT_ALLOWED", error.message, {
        violations: [violation],
      }),
    );
  }
  if (isTransient(error)) {
    log.warn({ err: error, method }, "the database is unavailable");
    return refusal(databaseAway());
  }
  const reference = randomUUID();
  log.error({ err: error, method, reference }, "internal error");
  return detailed(`internal error; reference in the service's log: ${reference}`, Code.Internal, {
    reason: "INTERNAL",
    metadata: { reference },
  });
}

/** Called once for each refused call. */
export type OnRefused = (error: ConnectError) => void;

/** The error while the database is unavailable. */
export function databaseAway(): DomainError {
  return unavailable("the database is unavailable", "DATABASE_AWAY");
}

/** The error until the service has found and migrated its database. */
export function startingError(): DomainError {
  return unavailable("the service is starting and waits for its database", "DATABASE_AWAY");
}

/** The error while the service is stopping. */
export function stoppingError(): DomainError {
  return unavailable("the service is stopping", "STOPPING");
}

function unavailable(problem: string, reason: "DATABASE_AWAY" | "STOPPING"): DomainError {
  return new DomainError(reason, `${problem}; retry`, { retryAfterMs: RETRY_AWAY_MS });
}

/** Converts a DomainError for the caller. */
export function refusal(error: DomainError): ConnectError {
  return detailed(error.message, STATUS_CODES[error.code] as Code, error);
}

/**
 * Adds details to errors of the libraries. Errors that have details are returned unchanged.
 *
 * @param request the type of the request; undefined if the library has read it
 */
export function withReason(error: ConnectError, request?: DescMessage): ConnectError {
  if (error.details.length > 0) return error;
  // The only limit in the libraries is that of the message size.
  if (error.code === Code.ResourceExhausted) {
    return detailed("the message is too large for this method; send a smaller one", error.code, {
      reason: "MESSAGE_TOO_LARGE",
    });
  }
  // The client sent bytes that are not a valid message.
  const code = error.rawMessage.startsWith("parse binary") ? Code.InvalidArgument : error.code;
  const reason = DEFAULT_REASONS[STATUS_NAMES.get(code) ?? "UNKNOWN"];
  const told = detailed(plainJsonMessage(error.rawMessage, request), code, { reason });
  for (const [name, value] of error.metadata) told.metadata.set(name, value);
  return told;
}

/**
 * The error for a caller that speaks JSON: its message has names of fields as in JSON. The details keep those of the proto file, by which
 * programs find a field.
 *
 * @param request the type of the request
 */
export function inJsonNames(error: ConnectError, request: DescMessage): ConnectError {
  const message = withJsonNames(error.rawMessage, request);
  if (message === error.rawMessage) return error;
  const told = new ConnectError(message, error.code, error.metadata);
  told.details = error.details;
  return told;
}

/** A status as gRPC spells it. */
export function statusNameOf(code: Code): StatusName {
  return STATUS_NAMES.get(code) ?? "UNKNOWN";
}

/** Whether an error says that the request is too large. It has the gRPC status of a limit, but may not be retried as 429 suggests. */
export function isTooLarge(error: ConnectError): boolean {
  return reasonOf(error) === ("MESSAGE_TOO_LARGE" satisfies ErrorReason);
}

/** The reason that an error tells programs. */
export function reasonOf(error: ConnectError): string {
  return error.findDetails(ErrorInfoSchema)[0]?.reason ?? DEFAULT_REASONS.UNKNOWN;
}

interface Details {
  reason: ErrorReason;
  retryAfterMs?: number | undefined;
  violations?: readonly FieldViolation[];
  metadata?: Readonly<Record<string, string>>;
}

function detailed(message: string, code: Code, details: Details): ConnectError {
  const { reason, retryAfterMs, violations = [] } = details;
  const metadata = Object.fromEntries(
    Object.entries(details.metadata ?? {}).map(([name, value]) => [
      name,
      bounded(value, MAX_METADATA_LENGTH),
    ]),
  );
  const info: MessageInitShape<typeof ErrorInfoSchema> = { reason, domain: ERROR_DOMAIN, metadata };
  const text = boundedInTrailers(bounded(message, MAX_MESSAGE_LENGTH));
  const error = new ConnectError(text, code, undefined, [{ desc: ErrorInfoSchema, value: info }]);
  if (violations.length > 0) {
    const size = Object.values(metadata).reduce((sum, value) => sum + Buffer.byteLength(value), 0);
    const fieldViolations = boundedViolations(violations, MAX_DETAILS_BYTES - size);
    error.details.push({ desc: BadRequestSchema, value: { fieldViolations } });
  }
  if (retryAfterMs !== undefined) {
    error.details.push({
      desc: RetryInfoSchema,
      value: { retryDelay: durationFromMs(Math.ceil(retryAfterMs)) },
    });
    error.metadata.set("Retry-After", String(Math.ceil(retryAfterMs / 1_000)));
  }
  return error;
}

/** The first of the invalid fields. Texts are truncated, and their total size is bounded. @param maxBytes of UTF-8 */
function boundedViolations(violations: readonly FieldViolation[], maxBytes: number): FieldViolation[] {
  const named: FieldViolation[] = [];
  let room = maxBytes;
  for (const each of violations.slice(0, MAX_VIOLATIONS)) {
    const field = bounded(each.field, MAX_VIOLATION_LENGTH);
    const description = bounded(each.description, MAX_VIOLATION_LENGTH);
    room -= Buffer.byteLength(field) + Buffer.byteLength(description);
    if (room < 0) break;
    named.push({ field, description });
  }
  return named;
}

/**
 * Truncates text, hides the secrets in it, and makes it encodable as UTF-8: a request may contain half of a surrogate pair.
 */
function bounded(given: string, maxLength: number): string {
  const text = hideSecrets(given);
  return (text.length > maxLength ? `${text.slice(0, maxLength - 1)}…` : text).toWellFormed();
}

/** Truncates a message whose trailers would be larger than MAX_MESSAGE_BYTES. */
function boundedInTrailers(message: string): string {
  let room = MAX_MESSAGE_BYTES;
  let length = 0;
  for (const character of message) {
    const isPlain = character >= " " && character <= "~" && character !== "%";
    room -= isPlain ? 1 + 4 / 3 : Buffer.byteLength(character) * ENCODED_BYTES;
    if (room < 0) return `${message.slice(0, length)}…`;
    length += character.length;
  }
  return message;
}
