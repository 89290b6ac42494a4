import { STATUS_CODES } from "node:http";
import { ATTEMPT_ERRORS } from "../contract/attempt-errors.ts";
import { causeOfFault } from "../lib/egress/index.ts";

/** Why an attempt failed. */
export interface FailureCause {
  /** A stable code, which proto/webhook/v1/incident.proto lists. */
  code: string;
  /** The cause in words. */
  summary: string;
  /** What to do; empty if nothing is known. */
  remedy: string;
}

const CHECK_ACCESS =
  "check the authentication and the headers of the webhook with GetWebhookRequestSettings, and what the receiver expects";
const SEE_LOG = "see the receiver's log for the reason";
/** What to do about a status, unless the error says so. */
const STATUS_REMEDIES: Record<number, string> = {
  401: CHECK_ACCESS,
  403: CHECK_ACCESS,
  404: "check the path of the webhook's URL",
  405: "check the path of the webhook's URL, and that the receiver takes POST there",
  407: CHECK_ACCESS,
  410: "the receiver no longer takes these events: change the webhook's URL, or delete the webhook",
  413: "let the receiver, and proxies before it, take bodies of this size",
  429: "let the receiver take more requests, or set a rate limit for the webhook",
};
/** What to do about a cause, unless the error says so. */
const REMEDIES: Record<string, string> = {
  no_response:
    "let the receiver answer at once and do its work afterwards, or set a longer timeout for the webhook",
  connection_timeout: "check that the host accepts connections, and that no firewall drops them",
};
const UNKNOWN: FailureCause = { code: "unknown", summary: "the error is not known", remedy: "" };

/** Splits a text of an error, which names the remedy after the cause. */
function inParts(text: string): Pick<FailureCause, "summary" | "remedy"> {
  const end = text.indexOf("; ");
  if (end < 0) return { summary: text, remedy: "" };
  return { summary: text.slice(0, end), remedy: text.slice(end + 2).replace(/ \([A-Za-z][\w/]+\)$/, "") };
}

/** The cause of a failed attempt. Derived from what is stored of every attempt: its status and its error. */
export function failureCause(status: number | null, error: string | null): FailureCause {
  if (status !== null) return causeOfStatus(status, error);
  if (error === null) return UNKNOWN;
  const code = codeOf(error);
  const { summary, remedy } = inParts(error);
  return { code, summary, remedy: remedy || (REMEDIES[code] ?? "") };
}

function codeOf(error: string): string {
  if (error.startsWith(ATTEMPT_ERRORS.tokenEndpoint)) return "token_endpoint";
  if (error.startsWith(`${ATTEMPT_ERRORS.noResponse} within`)) return "no_response";
  if (error.startsWith(ATTEMPT_ERRORS.noConnection)) return "connection_timeout";
  // Errors of connections have codes; the other ones are this service's.
  return causeOfFault(error) ?? "service";
}

function causeOfStatus(status: number, error: string | null): FailureCause {
  const summary = `the receiver answers ${[status, STATUS_CODES[status]].join(" ").trim()}`;
  const kind = Math.floor(status / 100);
  const code = kind === 3 || kind === 5 ? `http_${kind}xx` : `http_${status}`;
  return { code, summary, remedy: inParts(error ?? "").remedy || (STATUS_REMEDIES[status] ?? SEE_LOG) };
}

/** The cause in the latest error of a webhook, as `HealthChange` has it. */
export function causeOfLatest(lastError: string): FailureCause {
  const [, status, error] = /^HTTP status (\d+)(?:: (.*))?$/s.exec(lastError) ?? [];
  return status === undefined ? failureCause(null, lastError) : failureCause(Number(status), error ?? null);
}

/**
 * The part that fails: the host of the webhook, or another part that many webhooks share.
 *
 * @param targetUrl the normalised URL of the webhook
 */
export function subjectOf({ code, summary }: FailureCause, targetUrl: string): string {
  const start = ATTEMPT_ERRORS.tokenEndpoint;
  if (code === "token_endpoint") return summary.slice(start.length).split(" ")[0] as string;
  if (code === "service") return "this service";
  if (summary.startsWith("the outbound proxy is unavailable")) return "the outbound proxy";
  return new URL(targetUrl).host;
}
