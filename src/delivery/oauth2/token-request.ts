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
import type { Dispatcher } from "undici";
import type { OAuth2Client } from "../../contract/target-rules.ts";
import type { Connections } from "../http/connections.ts";
import { ProxyUnavailableError } from "../proxy/proxy-error.ts";
import { describeFault } from "../request/outcome.ts";

/** The timeout of a token request in milliseconds: DNS lookup, connection, response. */
export const TOKEN_TIMEOUT_MS = 5_000;
/** The maximum size of a token endpoint's response, in bytes. */
const MAX_RESPONSE_BYTES = 64 * 1024;
/** The maximum length of an access token, in characters. */
const MAX_TOKEN = 16_384;
/** Visible ASCII: what a header can hold. */
const TOKEN = /^[\x21-\x7e]+$/;
/** Error codes of RFC 6749, 5.2, and its extensions. Other texts could repeat the request. */
const ERROR_CODE = /^[a-z_]{1,40}$/;
/** The lifetime of a token whose response does not tell it, in milliseconds. */
const DEFAULT_LIFETIME_MS = 300_000;
/** Codes of oauth4webapi's errors. */
const NOT_JSON = new Set<string>([PARSE_ERROR, RESPONSE_IS_NOT_JSON]);
/** Statuses of responses without a body. */
const NULL_BODY = new Set([204, 205, 304]);

/** An access token, and how long it can be used. */
export interface AccessToken {
  value: string;
  lifetimeMs: number;
}

/** Thrown if no access token could be fetched. The message names the token endpoint's host and no secret. */
export class TokenError extends Error {
  override name = "TokenError";
}

/**
 * Fetches an access token by the client credentials grant (RFC 6749, 4.4). Connections are those of deliveries: the
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
        [customFetch]: (url, { body, headers, method }) =>
          request(connections, { url, body: String(body), headers, method }, timeoutMs),
      },
    );
    status = response.status;
    const answer = await processClientCredentialsResponse(server, oauthClient, response);
    const { access_token: value, token_type: type, expires_in: seconds } = answer;
    if (type !== "bearer") throw new TokenError("the token's type is not Bearer");
    if (value.length > MAX_TOKEN || !TOKEN.test(value)) {
      throw new TokenError(`the token is not 1 to ${MAX_TOKEN} visible ASCII characters`);
    }
    return { value, lifetimeMs: seconds === undefined ? DEFAULT_LIFETIME_MS : seconds * 1_000 };
  } catch (error) {
    // Says nothing about the token endpoint.
    if (error instanceof ProxyUnavailableError) throw error;
    throw new TokenError(`${endpoint} ${inWords(error as Error, status)}`);
  }
}

/** The error, to read after the endpoint's name. Contains nothing that the endpoint can choose freely. */
function inWords(error: Error, status: number | undefined): string {
  if (status === undefined) {
    return error instanceof TokenError ? error.message : `cannot be reached: ${describeFault(error)}`;
  }
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

/** Sends a request over guarded connections, like `fetch`, with limits of time and size. */
function request(
  connections: Pick<Connections, "dispatch">,
  { url, ...options }: { url: string; method: string; headers: Record<string, string>; body: string },
  timeoutMs: number,
): Promise<Response> {
  const { origin, pathname, search } = new URL(url);
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let received = 0;
    let status = 0;
    let responseHeaders: [string, string][] = [];
    // Before the dispatch, which can fail at once.
    const timer = setTimeout(() => {
      reject(new TokenError(`did not answer within ${timeoutMs / 1_000} s`));
      giveUp();
    }, timeoutMs);
    const end = (work: () => void) => {
      clearTimeout(timer);
      work();
    };
    const giveUp = connections.dispatch({
      options: {
        ...options,
        method: options.method as Dispatcher.HttpMethod,
        headers: { "accept-encoding": "identity", ...options.headers },
        origin,
        path: pathname + search,
      },
      handler: {
        onRequestStart() {},
        onResponseStart(_controller, code, headers) {
          if (code < 200) return;
          status = code;
          responseHeaders = Object.entries(headers).flatMap(([name, values]) =>
            [values ?? []].flat().map((value): [string, string] => [name, value]),
          );
        },
        onResponseData(controller, chunk) {
          received += chunk.length;
          if (received <= MAX_RESPONSE_BYTES) {
            chunks.push(Buffer.from(chunk));
            return;
          }
          end(() => reject(new TokenError(`answered with more than ${MAX_RESPONSE_BYTES} bytes`)));
          controller.abort(new Error("response too large"));
        },
        onResponseEnd() {
          end(() => {
            try {
              const body = NULL_BODY.has(status) ? null : Buffer.concat(chunks);
              resolve(new Response(body, { status, headers: responseHeaders }));
            } catch {
              reject(new TokenError(`answered ${status}, which is no HTTP status`));
            }
          });
        },
        onResponseError: (_controller, error) => end(() => reject(error)),
      },
    });
  });
}
