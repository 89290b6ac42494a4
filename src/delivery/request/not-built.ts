import { UnopenableError } from "../../db/webhooks/secret-box.ts";
import type { Outcome } from "./outcome.ts";
import { NoPayloadError } from "./request.ts";
import { UnopenableSettingsError } from "./settings-headers.ts";

function reasonOf(cause: unknown): string {
  if (cause instanceof NoPayloadError || cause instanceof UnopenableSettingsError) return cause.message;
  return cause instanceof UnopenableError
    ? "the webhook's signing secret cannot be decrypted: create a new one with RotateWebhookSecret, or see the service's log"
    : "the request could not be built; see the service's log";
}

/** The outcome of an attempt whose request could not be built: a failure of this service. */
export function notBuilt(cause: unknown): Outcome {
  return {
    delivered: false,
    started: new Date(),
    durationMs: 0,
    status: null,
    error: reasonOf(cause),
    responseStart: null,
    responseHeaders: null,
    retryAfterMs: null,
    failure: "ours",
  };
}
