/** Why a request cannot be done, as gRPC names it. */
export type DomainErrorCode = Extract<
  StatusName,
  | "INVALID_ARGUMENT"
  | "NOT_FOUND"
  | "ALREADY_EXISTS"
  | "FAILED_PRECONDITION"
  | "UNAUTHENTICATED"
  | "PERMISSION_DENIED"
  | "RESOURCE_EXHAUSTED"
  | "UNAVAILABLE"
  | "UNIMPLEMENTED"
>;

/** One thing wrong with a request. */
export interface FieldViolation {
  /** Path by proto names, such as `order_dispatched.lines[0].sku`. */
  field: string;
  /** What to change; reads on after the field's name. */
  description: string;
}

/** What a refusal tells to programs, beside its code and the message for people. */
export interface RefusalDetails {
  /** When left out: RATE_LIMITED for a limit that `retryAfterMs` tells the end of, else the code's general reason. */
  reason?: ErrorReason;
  /** When the same request may be sent again, in milliseconds from now. */
  retryAfterMs?: number;
  violations?: readonly FieldViolation[];
  /** Facts of this one refusal; no secrets. */
  metadata?: Readonly<Record<string, string>>;
}

/** A refusal that the caller is told of: the message says what to change and holds no secret. */
export class DomainError extends Error {
  override name = "DomainError";
  readonly code: DomainErrorCode;
  readonly reason: ErrorReason;
  readonly retryAfterMs: number | undefined;
  readonly violations: readonly FieldViolation[];
  readonly metadata: Readonly<Record<string, string>>;

  constructor(code: DomainErrorCode, message: string, details: RefusalDetails = {}) {
    super(message);
    this.code = code;
    const isRate = code === "RESOURCE_EXHAUSTED" && details.retryAfterMs !== undefined;
    this.reason = details.reason ?? (isRate ? "RATE_LIMITED" : DEFAULT_REASONS[code]);
    this.retryAfterMs = details.retryAfterMs;
    this.violations = details.violations ?? [];
    this.metadata = details.metadata ?? {};
  }
}

/** The statuses of a call that failed, by the names and numbers of gRPC. */
export const STATUS_CODES = {
  CANCELLED: 1,
  UNKNOWN: 2,
  INVALID_ARGUMENT: 3,
  DEADLINE_EXCEEDED: 4,
  NOT_FOUND: 5,
  ALREADY_EXISTS: 6,
  PERMISSION_DENIED: 7,
  RESOURCE_EXHAUSTED: 8,
  FAILED_PRECONDITION: 9,
  ABORTED: 10,
  OUT_OF_RANGE: 11,
  UNIMPLEMENTED: 12,
  INTERNAL: 13,
  UNAVAILABLE: 14,
  DATA_LOSS: 15,
  UNAUTHENTICATED: 16,
} as const;

/** The status of a call that failed, as gRPC names it. */
export type StatusName = keyof typeof STATUS_CODES;

/** The `domain` of every google.rpc.ErrorInfo of this service. */
export const ERROR_DOMAIN = "webhook-service";

/**
 * Every reason that a google.rpc.ErrorInfo of this service may have, with its status. Callers decide by them: a
 * reason is kept for ever, and docs/clients.md lists them in these words.
 */
export const ERROR_REASONS = {
  FIELDS_INVALID: {
    status: "INVALID_ARGUMENT",
    meaning: "fields are missing or wrong; BadRequest names each",
  },
  URL_NOT_ALLOWED: { status: "INVALID_ARGUMENT", meaning: "no webhook can have this address" },
  REQUEST_INVALID: { status: "INVALID_ARGUMENT", meaning: "the request cannot be read" },
  MESSAGE_TOO_COMPLEX: {
    status: "INVALID_ARGUMENT",
    meaning: "the message holds too many fields or list items, or a number with too many digits",
  },
  WEBHOOK_NOT_FOUND: { status: "NOT_FOUND", meaning: "there is no such webhook" },
  DELIVERY_NOT_FOUND: { status: "NOT_FOUND", meaning: "there is no such delivery" },
  APP_NOT_FOUND: { status: "NOT_FOUND", meaning: "there is no such installed app" },
  API_KEY_NOT_FOUND: { status: "NOT_FOUND", meaning: "there is no such API key" },
  NOT_FOUND: { status: "NOT_FOUND", meaning: "what the request names is not there" },
  IDEMPOTENCY_KEY_REUSED: {
    status: "ALREADY_EXISTS",
    meaning: "another event was published under the idempotency key",
  },
  ALREADY_EXISTS: { status: "ALREADY_EXISTS", meaning: "it is there already, and is not the same" },
  STATE_NOT_FIT: {
    status: "FAILED_PRECONDITION",
    meaning: "what the request names is not in a state for it",
  },
  TOO_MANY_WEBHOOKS: {
    status: "FAILED_PRECONDITION",
    meaning: "as many webhooks are registered as the service takes",
  },
  TOO_MANY_API_KEYS: {
    status: "FAILED_PRECONDITION",
    meaning: "the service has as many API keys as it takes, revoked ones included",
  },
  TOO_MANY_APPS: {
    status: "FAILED_PRECONDITION",
    meaning: "the service has as many installed apps as it takes",
  },
  TOO_MANY_SECRETS: {
    status: "FAILED_PRECONDITION",
    meaning: "as many secrets are valid as there may be; the message says when the first expires",
  },
  API_KEY_MISSING: { status: "UNAUTHENTICATED", meaning: "the call carries no API key" },
  API_KEY_UNKNOWN: { status: "UNAUTHENTICATED", meaning: "the API key is unknown or revoked" },
  PERMISSION_MISSING: {
    status: "PERMISSION_DENIED",
    meaning: "the API key lacks the permission that the metadata names",
  },
  PROCESS_NOT_ALLOWED: {
    status: "PERMISSION_DENIED",
    meaning: "the API key may not subscribe to this event type",
  },
  NOT_ALLOWED: { status: "PERMISSION_DENIED", meaning: "the API key may not do this" },
  RATE_LIMITED: {
    status: "RESOURCE_EXHAUSTED",
    meaning: "too many requests; RetryInfo says when to come again",
  },
  MESSAGE_TOO_LARGE: {
    status: "RESOURCE_EXHAUSTED",
    meaning: "the message is larger than the service reads",
  },
  STREAM_TOO_LONG: { status: "RESOURCE_EXHAUSTED", meaning: "the stream holds too many events" },
  LIMIT_REACHED: { status: "RESOURCE_EXHAUSTED", meaning: "there is no room for more" },
  DEADLINE_EXCEEDED: { status: "DEADLINE_EXCEEDED", meaning: "the call took longer than its caller allowed" },
  CANCELLED: { status: "CANCELLED", meaning: "the caller went away" },
  METHOD_NOT_SERVED: {
    status: "UNIMPLEMENTED",
    meaning: "there is no such method, or not in this encoding or kind of call",
  },
  DATABASE_AWAY: { status: "UNAVAILABLE", meaning: "the database does not answer; try again" },
  STOPPING: { status: "UNAVAILABLE", meaning: "the service is being stopped; try again" },
  UNAVAILABLE: { status: "UNAVAILABLE", meaning: "the service cannot answer at the moment; try again" },
  INTERNAL: { status: "INTERNAL", meaning: "our own fault; the metadata's reference finds it in the log" },
} as const satisfies Record<string, { status: StatusName; meaning: string }>;

/** Why a call was refused; what programs decide by. */
export type ErrorReason = keyof typeof ERROR_REASONS;

/** The reason of a refusal that gives none. */
export const DEFAULT_REASONS: Record<StatusName, ErrorReason> = {
  CANCELLED: "CANCELLED",
  UNKNOWN: "INTERNAL",
  INVALID_ARGUMENT: "REQUEST_INVALID",
  DEADLINE_EXCEEDED: "DEADLINE_EXCEEDED",
  NOT_FOUND: "NOT_FOUND",
  ALREADY_EXISTS: "ALREADY_EXISTS",
  PERMISSION_DENIED: "NOT_ALLOWED",
  RESOURCE_EXHAUSTED: "LIMIT_REACHED",
  FAILED_PRECONDITION: "STATE_NOT_FIT",
  ABORTED: "UNAVAILABLE",
  OUT_OF_RANGE: "REQUEST_INVALID",
  UNIMPLEMENTED: "METHOD_NOT_SERVED",
  INTERNAL: "INTERNAL",
  UNAVAILABLE: "UNAVAILABLE",
  DATA_LOSS: "INTERNAL",
  UNAUTHENTICATED: "API_KEY_UNKNOWN",
};
