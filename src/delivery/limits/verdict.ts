import type { FailureOf, Outcome } from "../request/outcome.ts";
import type { Verdict } from "./scheduler.ts";

/** The effect of an attempt that was not made: none. */
export const NO_VERDICT: Verdict = { webhook: "none", host: "none" };

/** The effects of failures without a response. Failures that are not listed say nothing about the receiver. */
const OF_FAILURE: Partial<Record<FailureOf, Verdict>> = {
  webhook: { webhook: "failure", host: "partial failure" },
  "webhook timeout": { webhook: "timeout", host: "none" },
  tls: { webhook: "failure", host: "none" },
  refused: { webhook: "failure", host: "none" },
  host: { webhook: "none", host: "failure" },
  "host timeout": { webhook: "none", host: "timeout" },
};

/**
 * Returns the effect of an outcome on the windows. A failure of a webhook also counts for its host until the host has had a success: if all
 * webhooks of a host fail, one request shows it.
 */
export function verdictOf({ delivered, status, failure, wish }: Outcome): Verdict {
  if (delivered) return { webhook: "success", host: "success" };
  // The receiver is well, and speaks for its own webhook.
  if (wish && wish.holdMs > 0) return { webhook: "hold", host: "none" };
  if (status !== null) return { webhook: "failure", host: "partial failure" };
  return (failure && OF_FAILURE[failure]) ?? NO_VERDICT;
}
