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

/** A test request. */
export interface TrialRequest {
  webhookId: bigint;
  /** Custom headers and credentials: names and values in turn. */
  headers: readonly string[];
  /** The body, JSON. */
  payload: string;
}

/** What became of a test request. */
export interface TrialOutcome {
  /** Whether the endpoint answered 2xx in time. */
  accepted: boolean;
  status: number | null;
  error: string | null;
  responseStart: string | null;
  durationMs: number;
}

/**
 * Sends one test request to a webhook, signed, under the rules for deliveries: the address guard, no redirects, the
 * timeout of an attempt. The API asks; delivery/request/trial.ts answers.
 *
 * @returns null if the webhook was deleted
 * @throws DomainError RESOURCE_EXHAUSTED while too many test requests are in flight
 */
export type RequestTrial = (request: TrialRequest) => Promise<TrialOutcome | null>;
