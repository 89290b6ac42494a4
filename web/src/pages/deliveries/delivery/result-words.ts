import statuses from "statuses";
import type { Delivery } from "../../../../../gen/webhook/v1/delivery_pb.ts";
import { capitalized } from "../../../parts/text/capitalized.ts";
import { arrived } from "./rounds.ts";

/** The reasons for a final state that say more than the state does. */
export const REASONS: Readonly<Record<string, string>> = {
  interrupted: "The worker crashed 10 times while sending this delivery.",
  "queue full": "Never sent: more deliveries waited for the webhook than MAX_PENDING_PER_WEBHOOK allows.",
  expired: "The delivery waited longer than RETENTION_DAYS, so no further attempt was made.",
  "webhook deleted": "The webhook was deleted first.",
  "payload erased": "The payload was erased first.",
};

/** The outcome of a delivery's latest attempt, or the reason why it ended without one. Undefined before the first. */
export function latestInWords({
  status,
  error,
  reason,
}: Pick<Delivery, "status" | "error" | "reason">): string | undefined {
  if (reason !== undefined) return capitalized(reason);
  return status === undefined && error === undefined ? undefined : resultInWords({ status, error });
}

/** The outcome of an attempt, in words: `503 Service Unavailable`. */
export function resultInWords(attempt: { status?: number | undefined; error?: string | undefined }): string {
  const { status, error } = attempt;
  if (status === undefined) return capitalized(error ?? "no answer");
  const answer = `${status} ${statuses.message[status] ?? ""}`.trim();
  // Attempts of earlier releases have no text for redirects.
  const isRedirect = !arrived(attempt) && status >= 300 && status <= 399;
  const told = error ?? (isRedirect ? "redirects are not followed" : undefined);
  return told === undefined ? answer : `${answer}: ${told}`;
}
