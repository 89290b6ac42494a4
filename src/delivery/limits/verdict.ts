import type { FailureOf, Outcome } from "../request/outcome.ts";
import type { Verdict } from "./scheduler.ts";

/** The effect of an attempt that was not made: none. */
export const NO_VERDICT: Verdict = { webhook: "none", host: "none" };

/** The effects of failures without a response. The others say nothing about the receiver. */
const OF_FAILURE: Partial<Record<FailureOf, Verdict>> = {
  // A host that closes all connections is known after one request instead of one for each of its webhooks.
  webhook: { webhook: "failure", host: "partial failure" },
  "webhook timeout": { webhook: "timeout", host: "none" },
  tls: { webhook: "failure", host: "none" },
  host: { webhook: "none", host: "failure" },
  "host timeout": { webhook: "none", host: "timeout" },
};

/** The effect of an outcome on the windows. Any response is a success of the host. */
export function verdictOf({ delivered, status, failure }: Outcome): Verdict {
  if (status !== null) return { webhook: delivered ? "success" : "failure", host: "success" };
  return (failure && OF_FAILURE[failure]) ?? NO_VERDICT;
}
