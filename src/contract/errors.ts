/** The gRPC status of a refused request. */
export type DomainErrorCode = Extract<
  StatusName,
  | "INVALID_ARGUMENT"
  | "NOT_FOUND"
  | "ALREADY_EXISTS"
  | "FAILED_PRECONDITION"
  | "ABORTED"
  | "UNAUTHENTICATED"
  | "PERMISSION_DENIED"
  | "RESOURCE_EXHAUSTED"
  | "UNAVAILABLE"
  | "UNIMPLEMENTED"
>;

/** An error in a field of a request. */
export interface FieldViolation {
  /** Path by proto names, such as `order_dispatched.lines[0].sku`. */
  field: string;
  /** The required change, to read after the field's name. */
  description: string;
}

/** Details of a refusal for programs, beside its reason and message. */
export interface RefusalDetails {
  /** The status. Defaults to that of the reason. */
  code?: DomainErrorCode;
  /** The delay before the request may be sent again, in milliseconds. */
  retryAfterMs?: number;
  violations?: readonly FieldViolation[];
  /** Facts of this one refusal; no secrets. */
  metadata?: Readonly<Record<string, string>>;
}

/** The error of a refused call. Its message says what to change and contains no secret. */
export class DomainError extends Error {
  override name = "DomainError";
  readonly code: DomainErrorCode;
  readonly reason: ErrorReason;
  readonly retryAfterMs: number | undefined;
  readonly violations: readonly FieldViolation[];
  readonly metadata: Readonly<Record<string, string>>;

  constructor(reason: RefusalReason, message: string, details: RefusalDetails = {}) {
    super(message);
    this.code = details.code ?? ERROR_REASONS[reason].status;
    this.reason = reason;
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
 * The reasons of google.rpc.ErrorInfo, with status and meaning. Reason codes are stable. docs/clients.md lists them, with
 * these meanings unless the code says the same.
 */
export const ERROR_REASONS = {
  FIELDS_INVALID: {
    status: "INVALID_ARGUMENT",
    meaning: "fields are missing or invalid",
  },
  URL_NOT_ALLOWED: {
    status: "INVALID_ARGUMENT",
    meaning: "the URL is not allowed",
  },
  REQUEST_INVALID: { status: "INVALID_ARGUMENT", meaning: "the request is malformed" },
  MESSAGE_TOO_COMPLEX: {
    status: "INVALID_ARGUMENT",
    meaning: "too many fields, list items, nested levels or digits",
  },
  WEBHOOK_NOT_FOUND: { status: "NOT_FOUND", meaning: "no such webhook" },
  ENDPOINT_NOT_FOUND: { status: "NOT_FOUND", meaning: "no such endpoint" },
  DELIVERY_NOT_FOUND: { status: "NOT_FOUND", meaning: "no such delivery" },
  REPLAY_NOT_FOUND: { status: "NOT_FOUND", meaning: "no such replay" },
  INCIDENT_NOT_FOUND: { status: "NOT_FOUND", meaning: "no such incident" },
  EVENT_NOT_FOUND: { status: "NOT_FOUND", meaning: "no such event" },
  APP_NOT_FOUND: { status: "NOT_FOUND", meaning: "no such installed app" },
  API_KEY_NOT_FOUND: { status: "NOT_FOUND", meaning: "no such API key" },
  CUSTOMER_NOT_FOUND: { status: "NOT_FOUND", meaning: "no such customer" },
  NOT_FOUND: { status: "NOT_FOUND", meaning: "no such resource" },
  IDEMPOTENCY_KEY_REUSED: {
    status: "ALREADY_EXISTS",
    meaning: "the idempotency key was used for a different event or replay",
  },
  WEBHOOK_EXISTS: {
    status: "ALREADY_EXISTS",
    meaning: "another webhook has this event type and URL",
  },
  REVISION_CHANGED: {
    status: "ABORTED",
    meaning: "the webhook was changed meanwhile; the metadata holds its current revision",
  },
  ALREADY_EXISTS: { status: "ALREADY_EXISTS", meaning: "a different resource has this identifier" },
  STATE_NOT_FIT: {
    status: "FAILED_PRECONDITION",
    meaning: "the resource's state does not allow this operation",
  },
  TOO_MANY_WEBHOOKS: {
    status: "FAILED_PRECONDITION",
    meaning: "MAX_WEBHOOKS is reached, or the quota that the metadata names",
  },
  TOO_MANY_API_KEYS: {
    status: "FAILED_PRECONDITION",
    meaning: "MAX_API_KEYS is reached; revoked keys count",
  },
  TOO_MANY_APPS: {
    status: "FAILED_PRECONDITION",
    meaning: "MAX_INSTALLED_APPS is reached",
  },
  TOO_MANY_SECRETS: {
    status: "FAILED_PRECONDITION",
    meaning: "too many valid secrets; the message says when the first expires",
  },
  API_KEY_MISSING: { status: "UNAUTHENTICATED", meaning: "the call has no API key" },
  API_KEY_UNKNOWN: { status: "UNAUTHENTICATED", meaning: "the API key is unknown or revoked" },
  PERMISSION_MISSING: {
    status: "PERMISSION_DENIED",
    meaning: "the API key lacks the permission named in the metadata",
  },
  PROCESS_NOT_ALLOWED: {
    status: "PERMISSION_DENIED",
    meaning: "the API key may not subscribe to this event type",
  },
  PROXY_HEADER_WRONG: {
    status: "PERMISSION_DENIED",
    meaning: "a header of a proxy hides the settings page's address; the message says what to set",
  },
  NOT_ALLOWED: { status: "PERMISSION_DENIED", meaning: "the API key does not allow this operation" },
  RATE_LIMITED: {
    status: "RESOURCE_EXHAUSTED",
    meaning: "too many requests",
  },
  QUOTA_EXCEEDED: {
    status: "RESOURCE_EXHAUSTED",
    meaning: "the quota named in the metadata is used up",
  },
  MESSAGE_TOO_LARGE: {
    status: "RESOURCE_EXHAUSTED",
    meaning: "the message is too large",
  },
  STREAM_TOO_LONG: { status: "RESOURCE_EXHAUSTED", meaning: "the stream has too many events" },
  LIMIT_REACHED: { status: "RESOURCE_EXHAUSTED", meaning: "another limit is reached; the message names it" },
  DEADLINE_EXCEEDED: { status: "DEADLINE_EXCEEDED", meaning: "the client's deadline expired" },
  CANCELLED: {
    status: "CANCELLED",
    meaning: "the client cancelled the call or stopped sending",
  },
  METHOD_NOT_SERVED: {
    status: "UNIMPLEMENTED",
    meaning: "no such method, encoding or call type",
  },
  DATABASE_AWAY: { status: "UNAVAILABLE", meaning: "the database is unavailable" },
  STOPPING: { status: "UNAVAILABLE", meaning: "the service is stopping" },
  UNAVAILABLE: { status: "UNAVAILABLE", meaning: "the service is temporarily unavailable" },
  INTERNAL: {
    status: "INTERNAL",
    meaning: "server error; look up the metadata's reference in the log",
  },
} as const satisfies Record<string, { status: StatusName; meaning: string }>;

/** The reason of a refused call, for programs. */
export type ErrorReason = keyof typeof ERROR_REASONS;

/** The reason of a refusal: a call that the client can change or repeat. */
export type RefusalReason = {
  [Reason in ErrorReason]: (typeof ERROR_REASONS)[Reason]["status"] extends DomainErrorCode ? Reason : never;
}[ErrorReason];

/** The reasons of errors of the library, which have only a status. */
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
