import { type Dispatcher, errors, request } from "undici";
import { ATTEMPT_ERRORS } from "../../contract/attempt-errors.ts";
import { USER_AGENT } from "../../contract/delivery-headers.ts";
import type { OAuth2Client } from "../../contract/target-rules.ts";
import {
  contentCoding,
  type Dispatching,
  decompressed,
  describeFault,
  MAX_RESPONSE_BYTES,
  ProxyUnavailableError,
} from "../../lib/egress/index.ts";
import { authorizationOf, type ClientAuthentication, waysFor } from "./client-authentication.ts";

/** The timeout of a token request in milliseconds: DNS lookup, connection, response. */
export const TOKEN_TIMEOUT_MS = 5_000;
/** The maximum length of an access token, in characters. */
const MAX_TOKEN = 16_384;
/** Visible ASCII: what a header can hold. */
const TOKEN = /^[\x21-\x7e]+$/;
/** Other types need more than the token, such as a proof of DPoP (RFC 6749, 7.1). Apigee calls it `BearerToken`. */
const BEARER = /^(bearer|bearertoken)?$/i;
/** Error codes of RFC 6749, 5.2, and its extensions. Other texts are not shown, because they could repeat secrets of the request. */
const ERROR_CODE = /^[a-z_]{1,40}$/;
/** The codes of servers that do not find the client's id and secret, or do not accept them. */
const UNKNOWN_CLIENT = new Set(["invalid_client", "invalid_request"]);
const CHECK_URL = "check the token URL";
const ALLOW_GRANT = "let the server allow this client the grant client_credentials";
/** The remedies by error code. */
const REMEDIES = new Map<unknown, string>([
  ["invalid_scope", "check the scopes"],
  ["invalid_target", "check the audience"],
  ["unauthorized_client", ALLOW_GRANT],
  ["unsupported_grant_type", ALLOW_GRANT],
]);
/** The lifetime of a token whose response has no `expires_in` above 0, in milliseconds. */
const DEFAULT_LIFETIME_MS = 300_000;

/** An access token and its lifetime since the request, in milliseconds. */
export interface AccessToken {
  value: string;
  lifetimeMs: number;
  /** The way to send the client's id and secret that the server accepted. */
  way?: ClientAuthentication;
}

/** Thrown if no access token could be fetched. The message names the token endpoint's host and no secret. */
export class TokenError extends Error {
  override name = "TokenError";
}

/** Thrown if the server does not accept the client's id and secret in the way in which they were sent. */
class ClientRefusedError extends TokenError {}

/**
 * Fetches an access token by the client credentials grant (RFC 6749, 4.4). The rules for connections are those of deliveries: the
 * guard checks every address and port, and redirects are not followed. A server that does not accept the id and secret gets them once in
 * each other way.
 *
 * @param worked the way that has worked before
 * @param timeoutMs the timeout of each request
 * @throws TokenError, ProxyUnavailableError
 */
export async function fetchToken(
  connections: Dispatching,
  client: OAuth2Client,
  {
    worked,
    timeoutMs = TOKEN_TIMEOUT_MS,
  }: { worked?: ClientAuthentication | undefined; timeoutMs?: number } = {},
): Promise<AccessToken> {
  let refused: ClientRefusedError | undefined;
  for (const way of waysFor(client, worked)) {
    try {
      return { ...(await ask(connections, client, way, timeoutMs)), way };
    } catch (error) {
      if (!(error instanceof ClientRefusedError)) throw error;
      refused ??= error;
    }
  }
  throw new TokenError(
    `${refused?.message}; it got the client's id and secret in the header Authorization and in the body (secret_in_body): check both`,
  );
}

async function ask(
  connections: Dispatching,
  client: OAuth2Client,
  way: ClientAuthentication,
  timeoutMs: number,
): Promise<AccessToken> {
  const { tokenUrl, clientId, clientSecret, scope, audience } = client;
  const endpoint = `${ATTEMPT_ERRORS.tokenEndpoint}${new URL(tokenUrl).host}`;
  const parameters = new URLSearchParams({ grant_type: "client_credentials" });
  if (scope !== null) parameters.set("scope", scope);
  if (audience !== null) parameters.set("audience", audience);
  const authorization = authorizationOf(client, way);
  if (authorization === null) {
    parameters.set("client_id", clientId);
    parameters.set("client_secret", clientSecret);
  }
  let answer: Answer;
  try {
    const response = await request(tokenUrl, {
      dispatcher: connections as unknown as Dispatcher,
      method: "POST",
      headers: {
        accept: "application/json",
        "accept-encoding": "identity",
        "content-type": "application/x-www-form-urlencoded;charset=UTF-8",
        "user-agent": USER_AGENT,
        ...(authorization === null ? {} : { authorization }),
      },
      body: parameters.toString(),
      signal: AbortSignal.timeout(timeoutMs),
    });
    answer = readAnswer(
      response.statusCode,
      response.headers,
      Buffer.from(await response.body.arrayBuffer()),
    );
  } catch (error) {
    // Not an error of the token endpoint: no connection was opened to it.
    if (error instanceof ProxyUnavailableError) throw error;
    throw new TokenError(`${endpoint} ${faultInWords(error as Error, timeoutMs)}`);
  }
  const { status, code } = answer;
  const told = typeof code === "string" && ERROR_CODE.test(code) ? ` (${code})` : "";
  const answered = `${endpoint} answered ${status}${told}`;
  if (status >= 200 && status <= 299 && told === "") return tokenOf(answer, endpoint);
  const isUnknown = (status === 401 && told === "") || (typeof code === "string" && UNKNOWN_CLIENT.has(code));
  if (status >= 300 && status <= 399)
    throw new TokenError(
      `${endpoint} answered ${status}; redirects are not followed; set the token URL that it redirects to`,
    );
  if (isUnknown) throw new ClientRefusedError(answered);
  const remedy = status === 404 || status === 405 ? CHECK_URL : "see the log of the token endpoint";
  throw new TokenError(`${answered}; ${REMEDIES.get(code) ?? remedy}`);
}

/** The response of a token endpoint. */
interface Answer {
  status: number;
  /** Undefined if the body is neither JSON nor a form. */
  fields: Record<string, unknown> | undefined;
  /** The error code. */
  code: unknown;
}

/** Whatever the Content-Type: servers send JSON as text, and some a form. */
function readAnswer(
  status: number,
  headers: Record<string, string | string[] | undefined>,
  body: Buffer,
): Answer {
  const coding = contentCoding(headers["content-encoding"]?.toString());
  const text = new TextDecoder().decode(decompressed(coding, body, MAX_RESPONSE_BYTES));
  const fields = fieldsIn(text);
  const challenge = /\berror="?([a-z_]+)/.exec(headers["www-authenticate"]?.toString() ?? "")?.[1];
  return { status, fields, code: fields?.error ?? challenge };
}

function fieldsIn(text: string): Answer["fields"] {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : undefined;
  } catch {
    return /^[\w.]+=/.test(text) ? Object.fromEntries(new URLSearchParams(text)) : undefined;
  }
}

/** @throws TokenError */
function tokenOf({ status, fields }: Answer, endpoint: string): AccessToken {
  const refuse = (problem: string) => new TokenError(`${endpoint} answered ${status}, but ${problem}`);
  if (!fields) throw refuse(`not with JSON; ${CHECK_URL}`);
  // RFC 6749, 5.1, requires the type, but some servers leave it out, and send the lifetime as text.
  const { access_token: value, token_type: type = "", expires_in: seconds } = fields;
  if (typeof value !== "string") throw refuse(`without a bearer token; ${CHECK_URL}`);
  if (!BEARER.test(String(type ?? "")))
    throw refuse("the token's type is not Bearer; let the server issue bearer tokens");
  if (value.length > MAX_TOKEN || !TOKEN.test(value))
    throw refuse(
      `the token is not 1 to ${MAX_TOKEN} visible ASCII characters; let the server issue one that a header can hold`,
    );
  const lifetimeMs = Number(seconds) * 1_000;
  return { value, lifetimeMs: lifetimeMs > 0 ? lifetimeMs : DEFAULT_LIFETIME_MS };
}

/** Describes an error without a response, to follow the endpoint's name. */
function faultInWords(error: Error, timeoutMs: number): string {
  if (error instanceof errors.ResponseExceededMaxSizeError)
    return `answered with more than ${MAX_RESPONSE_BYTES} bytes; ${CHECK_URL}`;
  if (error.name === "TimeoutError") return `did not answer within ${timeoutMs / 1_000} s; see its log`;
  return `cannot be reached: ${describeFault(error)}`;
}
