import {
  ClientSecretBasic,
  ClientSecretPost,
  clientCredentialsGrantRequest,
  customFetch,
  OperationProcessingError,
  PARSE_ERROR,
  processClientCredentialsResponse,
  RESPONSE_IS_NOT_JSON,
  ResponseBodyError,
  WWWAuthenticateChallengeError,
} from "oauth4webapi";
import { type Dispatcher, errors, request } from "undici";
import type { OAuth2Client } from "../../contract/target-rules.ts";
import {
  type Connections,
  describeFault,
  MAX_RESPONSE_BYTES,
  ProxyUnavailableError,
} from "../../lib/egress/index.ts";

/** The timeout of a token request in milliseconds: DNS lookup, connection, response. */
export const TOKEN_TIMEOUT_MS = 5_000;
/** The maximum length of an access token, in characters. */
const MAX_TOKEN = 16_384;
/** Visible ASCII: what a header can hold. */
const TOKEN = /^[\x21-\x7e]+$/;
/** Error codes of RFC 6749, 5.2, and its extensions. Other texts are not shown, because they could repeat secrets of the request. */
const ERROR_CODE = /^[a-z_]{1,40}$/;
/** The lifetime of a token whose response has no `expires_in`, in milliseconds. */
const DEFAULT_LIFETIME_MS = 300_000;
/** The codes of oauth4webapi's errors for a response that is not JSON. */
const NOT_JSON = new Set<string>([PARSE_ERROR, RESPONSE_IS_NOT_JSON]);

/** An access token and its lifetime since the request, in milliseconds. */
export interface AccessToken {
  value: string;
  lifetimeMs: number;
}

/** Thrown if no access token could be fetched. The message names the token endpoint's host and no secret. */
export class TokenError extends Error {
  override name = "TokenError";
}

/**
 * Fetches an access token by the client credentials grant (RFC 6749, 4.4). The rules for connections are those of deliveries: the
 * guard checks every address and port, and redirects are not followed.
 *
 * @throws TokenError, ProxyUnavailableError
 */
export async function fetchToken(
  connections: Pick<Connections, "dispatch">,
  client: OAuth2Client,
  timeoutMs = TOKEN_TIMEOUT_MS,
): Promise<AccessToken> {
  const { tokenUrl, clientId, clientSecret, scope, audience, secretInBody } = client;
  const endpoint = `token endpoint ${new URL(tokenUrl).host}`;
  const server = { issuer: tokenUrl, token_endpoint: tokenUrl };
  const oauthClient = { client_id: clientId };
  const parameters = new URLSearchParams();
  if (scope !== null) parameters.set("scope", scope);
  if (audience !== null) parameters.set("audience", audience);
  let status: number | undefined;
  try {
    const response = await clientCredentialsGrantRequest(
      server,
      oauthClient,
      secretInBody ? ClientSecretPost(clientSecret) : ClientSecretBasic(clientSecret),
      parameters,
      {
        [customFetch]: async (url, { body, headers, method }) => {
          const answer = await request(url, {
            dispatcher: connections as unknown as Dispatcher,
            method: method as Dispatcher.HttpMethod,
            headers: { "accept-encoding": "identity", ...headers },
            body: String(body),
            signal: AbortSignal.timeout(timeoutMs),
          });
          const content = await answer.body.text();
          status = answer.statusCode;
          return new Response(content, { status, headers: answer.headers as Record<string, string> });
        },
      },
    );
    const answer = await processClientCredentialsResponse(server, oauthClient, response);
    const { access_token: value, token_type: type, expires_in: seconds } = answer;
    if (type !== "bearer") throw new TokenError("the token's type is not Bearer");
    if (value.length > MAX_TOKEN || !TOKEN.test(value)) {
      throw new TokenError(`the token is not 1 to ${MAX_TOKEN} visible ASCII characters`);
    }
    return { value, lifetimeMs: seconds === undefined ? DEFAULT_LIFETIME_MS : seconds * 1_000 };
  } catch (error) {
    // Not an error of the token endpoint: no connection was opened to it.
    if (error instanceof ProxyUnavailableError) throw error;
    if ((error as Error).name === "TimeoutError")
      throw new TokenError(`${endpoint} did not answer within ${timeoutMs / 1_000} s`);
    throw new TokenError(`${endpoint} ${inWords(error as Error, status)}`);
  }
}

/** Describes an error, to follow the endpoint's name. Contains no text that the endpoint can choose freely. */
function inWords(error: Error, status: number | undefined): string {
  if (error instanceof errors.ResponseExceededMaxSizeError)
    return `answered with more than ${MAX_RESPONSE_BYTES} bytes`;
  if (status === undefined) return `cannot be reached: ${describeFault(error)}`;
  if (status >= 300 && status <= 399) return `answered ${status}; redirects are not followed`;
  const code = errorCode(error);
  if (code !== undefined && ERROR_CODE.test(code)) return `answered ${status} (${code})`;
  if (status !== 200) return `answered ${status}`;
  if (error instanceof TokenError) return `answered 200, but ${error.message}`;
  const isJson = !(error instanceof OperationProcessingError && NOT_JSON.has(error.code ?? ""));
  return `answered 200, but ${isJson ? "without a bearer token, its type and a valid lifetime" : "not with JSON"}`;
}

function errorCode(error: Error): string | undefined {
  if (error instanceof ResponseBodyError) return error.error;
  if (error instanceof WWWAuthenticateChallengeError) return error.cause[0]?.parameters.error;
  return undefined;
}
