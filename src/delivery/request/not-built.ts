import { ProxyUnavailableError } from "../../lib/egress/index.ts";
import { UnopenableError } from "../../webhooks/index.ts";
import { TokenError } from "../oauth2/token-request.ts";
import { NO_RESPONSE, type Outcome } from "./outcome.ts";

/** Thrown if a request cannot be built. The message says what is wrong and what to do. */
export class NotBuiltError extends Error {
  override name = "NotBuiltError";
}

function reasonOf(cause: unknown): string {
  if (cause instanceof UnopenableError)
    return "the webhook's signing secret cannot be decrypted: create a new one with RotateWebhookSecret (a key pair with RotateWebhookKeyPair), or see the service's log";
  const isExplained = [NotBuiltError, TokenError, ProxyUnavailableError].some(
    (kind) => cause instanceof kind,
  );
  return isExplained ? (cause as Error).message : "the request could not be built; see the service's log";
}

/**
 * The outcome of an attempt whose request could not be built: a failure of this service or of a token endpoint. Nothing was sent to the
 * receiver.
 *
 * @param started the start of the attempt
 */
export function notBuilt(cause: unknown, started = new Date()): Outcome {
  return {
    ...NO_RESPONSE,
    started,
    durationMs: Date.now() - started.getTime(),
    error: reasonOf(cause),
    failure: cause instanceof TokenError ? "token endpoint" : "ours",
  };
}
