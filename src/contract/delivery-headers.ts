import { processName } from "./catalogue.ts";

/** The User-Agent of requests to receivers. */
const USER_AGENT = "Webhook-Service/1";

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

/** The headers of every attempt of a delivery, but for its signature: names and values in turn (contract, 6.2). */
export function deliveryHeaders({ id, process, installedAppId, userId, test }: DeliveryFacts): string[] {
  const headers = [
    "Content-Type",
    "application/json; charset=utf-8",
    "User-Agent",
    USER_AGENT,
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

/** The maximum number of custom headers of a webhook. */
export const MAX_HEADERS = 20;
/** The maximum length of a header's name, in characters. */
export const MAX_HEADER_NAME = 100;
/** The maximum length of a header's value, a user name, a password or a token, in characters. */
export const MAX_HEADER_VALUE = 4_096;

/** Headers that HTTP or this service sets, in lower case. */
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
]);
/** Beginnings of such headers: those of the contract, of Standard Webhooks and of proxies. */
const OWNED_PREFIXES = ["x-service-", "webhook-", "proxy-"];
/**
 * The names of custom headers. HTTP allows more characters, but CGI servers read `_` and others as `-`: `x_service_userid` would pass
 * for X-Service-UserId.
 */
const NAME = /^[0-9A-Za-z-]+$/;
const VALUE = /^[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?$/;

/** The error of a custom header's name, to read after the field's name. Undefined if the name is allowed. */
export function headerNameError(name: string): string | undefined {
  if (name.length === 0 || name.length > MAX_HEADER_NAME || !NAME.test(name)) {
    return `must be a header name of 1 to ${MAX_HEADER_NAME} letters, digits and hyphens, such as X-Tenant`;
  }
  const lower = name.toLowerCase();
  if (!OWNED.has(lower) && !OWNED_PREFIXES.some((prefix) => lower.startsWith(prefix))) return undefined;
  return `is ${name}, which HTTP or this service sets; choose another name (not allowed: ${[...OWNED].join(", ")}, and names that begin with ${OWNED_PREFIXES.join(", ")})`;
}

/** The error of a header's value, to read after the field's name. Undefined if the value is allowed. */
export function headerValueError(value: string): string | undefined {
  if (value.length <= MAX_HEADER_VALUE && VALUE.test(value)) return undefined;
  return `must have 1 to ${MAX_HEADER_VALUE} visible ASCII characters, with spaces only between them`;
}

/** The maximum length of the text before a signature, in characters. */
const MAX_PREFIX = 50;

/** The error of the text before a signature in a header's value, to read after the field's name. Undefined if it is allowed. */
export function headerPrefixError(prefix: string): string | undefined {
  if (prefix.length <= MAX_PREFIX && /^[\x21-\x7e][\x20-\x7e]*$/.test(prefix)) return undefined;
  return `must have 1 to ${MAX_PREFIX} visible ASCII characters, such as sha256=, with spaces only after the first`;
}

/** The error of a bearer token, to read after the field's name. Undefined if the token is allowed (RFC 6750, 2.1). */
export function bearerTokenError(token: string): string | undefined {
  if (token.length <= MAX_HEADER_VALUE && /^[\w.~+/-]+=*$/.test(token)) return undefined;
  return `must have 1 to ${MAX_HEADER_VALUE} letters, digits and the characters - . _ ~ + /, with = at the end only`;
}

/** The error of OAuth 2.0 scopes, to read after the field's name. Undefined if they are allowed (RFC 6749, 3.3). */
export function scopeError(scope: string): string | undefined {
  if (
    scope.length <= MAX_HEADER_VALUE &&
    /^[\x21\x23-\x5b\x5d-\x7e]+(?: [\x21\x23-\x5b\x5d-\x7e]+)*$/.test(scope)
  )
    return undefined;
  return `must have at most ${MAX_HEADER_VALUE} visible ASCII characters without " and \\, scopes separated by one space`;
}

/** The error of a user name of Basic authentication, to read after the field's name (RFC 7617). */
export function userNameError(name: string): string | undefined {
  return headerValueError(name) ?? (name.includes(":") ? "must not contain a colon" : undefined);
}
