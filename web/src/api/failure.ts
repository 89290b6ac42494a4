import { Code, ConnectError } from "@connectrpc/connect";
import {
  BadRequestSchema,
  ErrorInfoSchema,
  RetryInfoSchema,
} from "../../../gen/google/rpc/error_details_pb.ts";
import { capitalized } from "../parts/text/words.ts";
import { awaySince } from "./away.ts";

/** An error for people. */
export interface FailureInWords {
  title: string;
  /** The error and the next step, in sentences. */
  text: string;
}

const TITLES: Partial<Record<Code, string>> = {
  [Code.InvalidArgument]: "The request is invalid",
  [Code.NotFound]: "Not found, or deleted",
  [Code.AlreadyExists]: "Already exists",
  [Code.Aborted]: "Changed by somebody else meanwhile",
  [Code.FailedPrecondition]: "This is not possible now",
  [Code.PermissionDenied]: "Your key may not do this",
  [Code.Unauthenticated]: "You are not signed in",
  [Code.ResourceExhausted]: "Too much at once",
  [Code.DeadlineExceeded]: "The service took too long",
  [Code.Unavailable]: "The service is not available at the moment",
};

/**
 * Says what went wrong in words, from whatever a call was refused with.
 *
 * @param isAway whether the service still does not answer. Defaults to whether it answered the latest call
 */
export function failureInWords(error: unknown, isAway = awaySince() !== undefined): FailureInWords {
  const refused = ConnectError.from(error);
  const status = proxyStatus(refused);
  if (!isAway && !wasAnswered(error))
    return { title: "The service did not answer", text: "It answers again: try again." };
  if (status !== undefined) {
    return {
      title: TITLES[Code.Unavailable] ?? "",
      text: `A proxy answered HTTP ${status} in place of the service. Check that the service runs, then try again.`,
    };
  }
  if (wasNotReached(refused)) {
    return {
      title: "The service does not answer",
      text: "Check that it runs and that you are connected to it, then try again.",
    };
  }
  if (failureReason(error) === "PROXY_HEADER_WRONG")
    return { title: "A proxy hides this page’s address", text: sentence(refused.rawMessage) };
  return { title: TITLES[refused.code] ?? "Something went wrong", text: sentence(refused.rawMessage) };
}

/** The errors of a form's fields, by the field's name in the request's message: `url`, `rateLimit`. */
export function fieldFailures(error: unknown): Record<string, string> {
  const violations = ConnectError.from(error)
    .findDetails(BadRequestSchema)
    .flatMap((detail) => detail.fieldViolations);
  return Object.fromEntries(
    violations.map(({ field, description }) => [camelCase(field), sentence(description)]),
  );
}

/** The reason of an error, such as `WEBHOOK_NOT_FOUND`. */
export function failureReason(error: unknown): string | undefined {
  return ConnectError.from(error).findDetails(ErrorInfoSchema)[0]?.reason;
}

/** After how many seconds it is worth trying again, where the service says so. */
export function retryAfterSeconds(error: unknown): number | undefined {
  const delay = ConnectError.from(error).findDetails(RetryInfoSchema)[0]?.retryDelay;
  return delay && Number(delay.seconds) + Math.ceil(delay.nanos / 1e9);
}

/** Whether a refusal came from the service, and not from a proxy before it or from the browser. */
export function wasAnswered(error: unknown): boolean {
  const refused = ConnectError.from(error);
  return !wasNotReached(refused) && !AWAY_STATUS.has(proxyStatus(refused) ?? "");
}

/** What proxies answer while the service is away. */
const AWAY_STATUS = new Set(["502", "503", "504"]);

/** The status of a response that is not the service's, whose errors are JSON. */
function proxyStatus({ rawMessage }: ConnectError): string | undefined {
  return /^HTTP (\d+)$/.exec(rawMessage)?.[1];
}

/** Browsers tell no more of a call that never arrived than that it failed. */
function wasNotReached(error: ConnectError): boolean {
  return error.cause instanceof TypeError && error.findDetails(ErrorInfoSchema).length === 0;
}

function sentence(text: string): string {
  const ended = /[.!?…]$/.test(text) ? text : `${text}.`;
  return capitalized(ended);
}

function camelCase(field: string): string {
  return field.replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
}
