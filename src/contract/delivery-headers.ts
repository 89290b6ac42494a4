import { processName } from "./catalogue.ts";

/** The User-Agent of requests to receivers and token endpoints. */
export const USER_AGENT = "Webhook-Service/1";

/** The facts of a delivery that its headers contain. */
export interface DeliveryFacts {
  id: string;
  /** Number of the WebhookProcess. */
  process: number;
  /** Set when the webhook was registered by an installed app. */
  installedAppId: string | null;
  userId: string;
  /** Whether the delivery is a test event. */
  test?: boolean | undefined;
}

/**
 * The headers of every attempt of a delivery, but for its signature: names and values in turn (contract, 6.2).
 *
 * @param custom the webhook's custom headers, names and values in turn
 */
export function deliveryHeaders(
  { id, process, installedAppId, userId, test }: DeliveryFacts,
  custom: readonly string[] = [],
): string[] {
  const accepts = custom.some((name, index) => index % 2 === 0 && name.toLowerCase() === "accept");
  const headers = [
    "Content-Type",
    "application/json; charset=utf-8",
    "User-Agent",
    USER_AGENT,
    ...(accepts ? [] : ["Accept", "*/*"]),
    "Accept-Encoding",
    "identity",
    "X-Service-Webhook-Id",
    id,
    "X-Service-Webhook-Process",
    processName(process),
  ];
  if (installedAppId !== null) headers.push("X-Service-UserId", userId);
  if (test) headers.push("X-Service-Webhook-Test", "true");
  return headers;
}

/** The maximum number of custom headers of a webhook. As many as GitLab allows, and twice as many as Azure Event Grid. */
export const MAX_HEADERS = 20;
/** The maximum length of a header's name, in characters. */
export const MAX_HEADER_NAME = 100;
/**
 * The maximum size of a header's value, a user name, a password, a token or a parameter of a token request, in bytes of UTF-8. Servers
 * refuse longer headers by default: Apache and nginx from 8 KiB on, Node from 16 KiB.
 */
export const MAX_HEADER_VALUE = 16_384;

/**
 * Headers that the value of a setting would break, in lower case. Most describe the connection or the body, and HTTP clients set them.
 * Receivers know the service by its User-Agent. A stored Date would be wrong.
 */
const OWNED = new Set([
  "accept-encoding",
  "connection",
  "content-encoding",
  "content-length",
  "content-type",
  "date",
  "expect",
  "host",
  "http2-settings",
  "keep-alive",
  "te",
  "traceparent",
  "tracestate",
  "trailer",
  "transfer-encoding",
  "upgrade",
  "user-agent",
  "webhook-id",
  "webhook-signature",
  "webhook-timestamp",
]);
/** Beginnings of such headers: those of the contract, on which receivers rely, and those that proxies read. */
const OWNED_PREFIXES = ["x-service-", "proxy-"];
/**
 * Fewer characters than a token may have (RFC 9110, 5.1): CGI servers read `_` and others as `-`, so that `x_service_userid` would pass
 * for a header of the service.
 */
const NAME = /^[0-9A-Za-z-]+$/;
/** White space around a value, which HTTP does not count as a part of it (RFC 9110, 5.5). */
const OUTER_SPACE = /^[\t ]+|[\t ]+$/g;
/** Characters that would end a header or confuse its reader (RFC 9110, 5.5; RFC 7617, 2): controls except the tab. */
const CONTROL = /(?!\t)\p{Cc}/u;

/** The error of a custom header's name, to read after the field's name. Undefined if the name is allowed. */
export function headerNameError(name: string): string | undefined {
  if (name.length > MAX_HEADER_NAME || !NAME.test(name)) {
    return `must be a header name of 1 to ${MAX_HEADER_NAME} letters, digits and hyphens, such as X-Tenant`;
  }
  const lower = name.toLowerCase();
  if (!OWNED.has(lower) && !OWNED_PREFIXES.some((prefix) => lower.startsWith(prefix))) return undefined;
  return `is ${name}, which HTTP or this service sets; choose another name (not allowed: ${[...OWNED].join(", ")}, and names that begin with ${OWNED_PREFIXES.join(", ")})`;
}

/** A custom header's value as HTTP transfers it: without white space around it. */
export const headerValue = (value: string): string => value.replaceAll(OUTER_SPACE, "");

/** A header's value as HTTP clients take it: each character is a byte of its UTF-8. */
export const headerBytes = (value: string): string => String.fromCharCode(...new TextEncoder().encode(value));

/** The error of a text of credentials or of a header's value, to read after the field's name. Undefined if it is allowed. */
export function headerValueError(value: string): string | undefined {
  const isShort =
    value.length <= MAX_HEADER_VALUE && new TextEncoder().encode(value).length <= MAX_HEADER_VALUE;
  if (isShort && !CONTROL.test(value) && value.isWellFormed()) return undefined;
  return `must have at most ${MAX_HEADER_VALUE} bytes, without line breaks and other control characters`;
}

/** The maximum length of the text before a signature, in characters. */
const MAX_PREFIX = 50;

/** The error of the text before a signature in a header's value, to read after the field's name. Undefined if it is allowed. */
export function headerPrefixError(prefix: string): string | undefined {
  if (prefix.length <= MAX_PREFIX && /^[\x21-\x7e][\x20-\x7e]*$/.test(prefix)) return undefined;
  return `must have 1 to ${MAX_PREFIX} visible ASCII characters, such as sha256=, with spaces only after the first`;
}

/**
 * The error of a bearer token, to read after the field's name. RFC 6750, 2.1, allows some characters only, but servers issue tokens with
 * others: `5|abcDEF` (Laravel), `user:token`.
 */
export function bearerTokenError(token: string): string | undefined {
  return headerValue(token) === "" ? "must not be empty" : headerValueError(token);
}

/** The error of a client id, to read after the field's name. A token endpoint identifies the client by it (RFC 6749, 2.2). */
export function clientIdError(id: string): string | undefined {
  return id === "" ? "is required" : headerValueError(id);
}

/** The error of a user name of Basic authentication, to read after the field's name. A colon ends the name (RFC 7617, 2). */
export function userNameError(name: string): string | undefined {
  return (
    headerValueError(name) ??
    (name.includes(":")
      ? "must not contain a colon, which ends the name in Basic authentication; use another name"
      : undefined)
  );
}
