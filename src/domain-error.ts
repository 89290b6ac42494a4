import { DEFAULT_REASONS, type ErrorReason, type StatusName } from "./error-reasons.ts";

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
