/** Decides which addresses webhooks may be registered for. The API asks; delivery/target-url.ts answers. */
export interface TargetRules {
  /**
   * The address as it will be requested: normalised as the WHATWG URL standard says, final dot of the host stripped.
   *
   * @throws InvalidTargetError
   */
  normalise(url: string): string;
}

/** An address that no webhook can have; the message tells what to change. */
export class InvalidTargetError extends Error {
  override name = "InvalidTargetError";
}
