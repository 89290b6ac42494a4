import type { Outcome } from "../request/outcome.ts";
import type { Verdict } from "./scheduler.ts";

/** The effect of an attempt that was not made: none. */
export const NO_VERDICT: Verdict = { webhook: "none", host: "none" };

/** The effect of an outcome on the windows. Any response is a success of the host. */
export function verdictOf({ delivered, status, failure }: Outcome): Verdict {
  if (status !== null) return { webhook: delivered ? "success" : "failure", host: "success" };
  switch (failure) {
    case "webhook":
      return { webhook: "failure", host: "none" };
    case "webhook timeout":
      return { webhook: "timeout", host: "none" };
    case "tls":
      return { webhook: "failure", host: "none" };
    case "host":
      return { webhook: "none", host: "failure" };
    case "host timeout":
      return { webhook: "none", host: "timeout" };
    default:
      return NO_VERDICT;
  }
}
