/** Why a request cannot be done, as gRPC names it. */
export type DomainErrorCode =
  | "INVALID_ARGUMENT"
  | "NOT_FOUND"
  | "ALREADY_EXISTS"
  | "FAILED_PRECONDITION"
  | "UNAUTHENTICATED"
  | "PERMISSION_DENIED";

/** A refusal that the caller is told of: the message says what to change and holds no secret. */
export class DomainError extends Error {
  override name = "DomainError";
  readonly code: DomainErrorCode;

  constructor(code: DomainErrorCode, message: string) {
    super(message);
    this.code = code;
  }
}
