import { gzipSync } from "node:zlib";
import { expect, test } from "vitest";
import type { ReceivedRequest, Reply } from "../../../demo/receiver.ts";
import type { OAuth2Client } from "../../../src/contract/target-rules.ts";
import { verdictOf } from "../../../src/delivery/limits/verdict.ts";
import { AccessTokens } from "../../../src/delivery/oauth2/access-tokens.ts";
import { fetchToken, TokenError } from "../../../src/delivery/oauth2/token-request.ts";
import { notBuilt } from "../../../src/delivery/request/not-built.ts";
import { anyPort } from "../../support/any-port.ts";
import { aReceiver } from "../../support/receivers.ts";
import { aClient } from "../http-parts.ts";

/** With characters that must be encoded in Basic credentials (RFC 6749, 2.3.1). */
const SECRET = "s3cret: +%/";

/** A token endpoint, and its client. */
async function endpoint(reply: Reply, more: Partial<OAuth2Client> = {}) {
  const server = await aReceiver(reply);
  const client: OAuth2Client = {
    tokenUrl: `${server.url}/oauth2/token?tenant=1`,
    clientId: "shop",
    clientSecret: SECRET,
    scope: null,
    audience: null,
    secretInBody: false,
    ...more,
  };
  return { server, client, host: `localhost:${server.port}` };
}

/** Answers with JSON. */
const json =
  (body: unknown, status = 200, headers: Record<string, string> = {}): Reply =>
  (_request, response) => {
    response.writeHead(status, { "content-type": "application/json", ...headers });
    response.end(JSON.stringify(body));
    return undefined;
  };

/** The message of the error. */
async function failureOf(client: OAuth2Client, via = aClient(), timeoutMs?: number): Promise<string> {
  const error = await fetchToken(via, client, timeoutMs === undefined ? {} : { timeoutMs }).catch(
    (each: unknown) => each,
  );
  expect(error).toBeInstanceOf(TokenError);
  const { message } = error as TokenError;
  expect(message).not.toContain("s3cret");
  return message;
}

test("a token is asked for with the client's credentials in the header, and its lifetime is known", async () => {
  const answer = json({ access_token: "abc.def", token_type: "Bearer", expires_in: 120 });
  const { server, client } = await endpoint(answer, { scope: "a b", audience: "https://api.example" });
  expect(await fetchToken(aClient(), client)).toMatchObject({ value: "abc.def", lifetimeMs: 120_000 });
  const [request] = server.received;
  expect(request?.path).toBe("/oauth2/token?tenant=1");
  const [scheme, credentials = ""] = request?.headers.authorization?.split(" ") ?? [];
  expect(scheme).toBe("Basic");
  const [, user, password = ""] = /^(.*?):(.*)$/.exec(atob(credentials)) ?? [];
  expect(user).toBe("shop");
  expect(decodeURIComponent(password.replaceAll("+", " "))).toBe(SECRET);
  expect(request?.headers["content-type"]).toMatch("application/x-www-form-urlencoded");
  expect(Object.fromEntries(new URLSearchParams(request?.body))).toEqual({
    grant_type: "client_credentials",
    scope: "a b",
    audience: "https://api.example",
  });
});

test("the credentials go into the body where that is chosen", async () => {
  const { server, client } = await endpoint(json({ access_token: "t", token_type: "bearer" }), {
    secretInBody: true,
  });
  expect(await fetchToken(aClient(), client)).toMatchObject({ value: "t", lifetimeMs: 300_000 });
  const [request] = server.received;
  expect(request?.headers.authorization).toBeUndefined();
  expect(Object.fromEntries(new URLSearchParams(request?.body))).toEqual({
    grant_type: "client_credentials",
    client_id: "shop",
    client_secret: SECRET,
  });
});

const bearer = (more: object) => json({ access_token: "t", token_type: "bearer", ...more });
const REDIRECT: Reply = (_request, response) => {
  response.writeHead(307, { location: "https://localhost:1/" }).end();
  return undefined;
};
const CHALLENGE = { "www-authenticate": 'Basic realm="x", error="invalid_token"' };
test.each<[string, Reply, string]>([
  ["an error", json({ error: "invalid_client", error_description: SECRET }, 400), "400 (invalid_client)"],
  ["a challenge", json({}, 401, CHALLENGE), "answered 401 (invalid_token); see the log"],
  ["an error that repeats the secret", json({ error: SECRET }, 400), "answered 400; see the log"],
  ["a server error", () => 503, "answered 503; see the log"],
  ["a wrong address", () => 404, "answered 404; check the token URL"],
  [
    "a redirect",
    REDIRECT,
    "answered 307; redirects are not followed; set the token URL that it redirects to",
  ],
  [
    "an error with the status of a success",
    json({ error: "invalid_scope" }),
    "answered 200 (invalid_scope); check the scopes",
  ],
  ["a page", () => 200, "answered 200, but not with JSON; check the token URL"],
  ["no token", bearer({ access_token: undefined }), "but without a bearer token"],
  ["a token that is no text", bearer({ access_token: 1 }), "but without a bearer token"],
  ["another type", bearer({ token_type: "DPoP" }), "the token's type is not Bearer"],
  ["a line break", bearer({ access_token: "t\r\nX: 1" }), "visible ASCII"],
  ["a huge token", bearer({ access_token: "t".repeat(20_000) }), "1 to 16384"],
  ["a huge response", bearer({ filler: "x".repeat(100_000) }), "with more than 65536 bytes"],
])("%s of a token endpoint is an error with its host and without the secret", async (_, reply, words) => {
  const { client, host } = await endpoint(reply);
  const message = await failureOf(client);
  expect(message).toMatch(`token endpoint ${host} `);
  expect(message).toContain(words);
});

const answer =
  (status: number, headers: Record<string, string>, body: string | Buffer): Reply =>
  (_request, response) => {
    response.writeHead(status, headers).end(body);
    return undefined;
  };
const TOKEN = { access_token: "t" };
const USUAL = 300_000;

test.each<[what: string, reply: Reply, lifetimeMs: number]>([
  ["201", json({ ...TOKEN, token_type: "Bearer", expires_in: 60 }, 201), 60_000],
  ["no type", json(TOKEN), USUAL],
  ["an empty type", json({ ...TOKEN, token_type: "" }), USUAL],
  ["null for what is missing", json({ ...TOKEN, token_type: null, expires_in: null, scope: null }), USUAL],
  ["a type in capitals", json({ ...TOKEN, token_type: "BEARER" }), USUAL],
  ["the type of Apigee", json({ ...TOKEN, token_type: "BearerToken" }), USUAL],
  ["a lifetime as text", json({ ...TOKEN, expires_in: "3599" }), 3_599_000],
  ["a lifetime with a fraction", json({ ...TOKEN, expires_in: 1.5 }), 1_500],
  ["a lifetime of 0", json({ ...TOKEN, expires_in: 0 }), USUAL],
  ["a negative lifetime", json({ ...TOKEN, expires_in: -1 }), USUAL],
  ["a lifetime in words", json({ ...TOKEN, expires_in: "never" }), USUAL],
  ["JSON as text", answer(200, { "content-type": "text/plain" }, JSON.stringify(TOKEN)), USUAL],
  ["JSON without a type, after a byte order mark", answer(200, {}, `\ufeff${JSON.stringify(TOKEN)}`), USUAL],
  ["a form", answer(200, {}, "access_token=t&token_type=bearer&expires_in=60"), 60_000],
  ["gzip", answer(200, { "content-encoding": "gzip" }, gzipSync(JSON.stringify(TOKEN))), USUAL],
])("a token is taken from an answer with %s", async (_, reply, lifetimeMs) => {
  const { client } = await endpoint(reply);
  expect(await fetchToken(aClient(), client)).toMatchObject({ value: "t", lifetimeMs });
});

/** How a request has the client's id and secret. */
function credentialsOf({ headers, body }: ReceivedRequest): string {
  const form = new URLSearchParams(body);
  const basic = headers.authorization?.replace("Basic ", "");
  return basic === undefined
    ? `body ${form.get("client_id")}:${form.get("client_secret")}`
    : `basic ${Buffer.from(basic, "base64")}`;
}

const PLAIN = { clientId: "3f2a-11_a", clientSecret: "s-e_c.r~t" };
const SPECIAL = { clientId: "https://shop.example/a b", clientSecret: "a+b/c%d:ü=" };
const LITERAL = "basic https://shop.example/a b:a+b/c%d:ü=";
const ENCODED = "basic https%3A//shop.example/a+b:a%2Bb/c%25d:%C3%BC=";
const BODY = "body https://shop.example/a b:a+b/c%d:ü=";
const JSON_401 = json({ error: "invalid_client" }, 401);

test.each<[what: string, client: Partial<OAuth2Client>, accepted: string, sent: string[], refusal?: Reply]>([
  ["compares the header literally", PLAIN, "basic 3f2a-11_a:s-e_c.r~t", ["basic 3f2a-11_a:s-e_c.r~t"]],
  [
    "reads only the body",
    PLAIN,
    "body 3f2a-11_a:s-e_c.r~t",
    ["basic 3f2a-11_a:s-e_c.r~t", "body 3f2a-11_a:s-e_c.r~t"],
  ],
  ["decodes the header", SPECIAL, ENCODED, [ENCODED]],
  ["compares a header with special characters literally", SPECIAL, LITERAL, [ENCODED, LITERAL]],
  ["reads only the body of special characters", SPECIAL, BODY, [ENCODED, LITERAL, BODY]],
  [
    "reads only the header, though the body is chosen",
    { ...SPECIAL, secretInBody: true },
    LITERAL,
    [BODY, ENCODED, LITERAL],
  ],
  [
    "says 401 without a code",
    PLAIN,
    "body 3f2a-11_a:s-e_c.r~t",
    ["basic 3f2a-11_a:s-e_c.r~t", "body 3f2a-11_a:s-e_c.r~t"],
    () => 401,
  ],
  [
    "says 400 for the header",
    PLAIN,
    "body 3f2a-11_a:s-e_c.r~t",
    ["basic 3f2a-11_a:s-e_c.r~t", "body 3f2a-11_a:s-e_c.r~t"],
    json({ error: "invalid_request" }, 400),
  ],
  ["knows no secret", { ...PLAIN, clientSecret: "" }, "basic 3f2a-11_a:", ["basic 3f2a-11_a:"]],
])(
  "a token endpoint that %s gets id and secret in its way, and at once the next time",
  async (_, more, accepted, sent, refusal = JSON_401) => {
    const reply: Reply = (request, response) =>
      credentialsOf(request) === accepted ? json(TOKEN)(request, response) : refusal(request, response);
    const { server, client } = await endpoint(reply, more);
    const via = aClient();
    const tokens = new AccessTokens((each, worked) => fetchToken(via, each, { worked }));
    expect(await tokens.get(client)).toBe("t");
    expect(server.received.map(credentialsOf)).toEqual(sent);
    tokens.refused(client, "t");
    expect(await tokens.get(client)).toBe("t");
    expect(server.received.map(credentialsOf)).toEqual([...sent, accepted]);
  },
);

test("if a token endpoint accepts the id and the secret in no way, the error names the setting", async () => {
  const { server, client, host } = await endpoint(JSON_401, PLAIN);
  expect(await failureOf(client)).toBe(
    `token endpoint ${host} answered 401 (invalid_client); it got the client's id and secret in the header Authorization and in the body (secret_in_body): check both`,
  );
  expect(server.received).toHaveLength(2);
});

test.each(["invalid_scope", "unauthorized_client", "unsupported_grant_type"])(
  "the error %s, of a server that knows the client, is final",
  async (error) => {
    const { server, client, host } = await endpoint(json({ error }, 400), PLAIN);
    expect(await failureOf(client)).toMatch(`token endpoint ${host} answered 400 (${error}); `);
    expect(server.received).toHaveLength(1);
  },
);

test.each([300, 301, 302, 303, 307, 308])(
  "the redirect %i of a token endpoint is not followed, and its error tells neither where it leads nor what it says",
  async (status) => {
    const target = await aReceiver(bearer({}));
    const location = `${target.url}/internal-target`;
    const answer = { access_token: "internal-token", token_type: "bearer", error: "internal_error" };
    const refresh = `0; url=${location}`;
    const { client, host, server } = await endpoint(json(answer, status, { location, refresh }));
    expect(await failureOf(client)).toBe(
      `token endpoint ${host} answered ${status}; redirects are not followed; set the token URL that it redirects to`,
    );
    expect([server.received.length, target.received.length]).toEqual([1, 0]);
  },
);

test("a token endpoint that does not answer, cannot be reached or has a private address is an error with its host", async () => {
  const { server, client, host } = await endpoint(() => new Promise<number>(() => {}));
  expect(await failureOf(client, aClient(), 100)).toBe(
    `token endpoint ${host} did not answer within 0.1 s; see its log`,
  );
  const port = await anyPort();
  const dead = { ...client, tokenUrl: `https://localhost:${port}/token` };
  expect(await failureOf(dead)).toContain(
    `token endpoint localhost:${port} cannot be reached: connection refused; check that the server runs`,
  );
  expect(await failureOf(client, aClient({ networks: [] }))).toContain(
    `token endpoint ${host} cannot be reached: address refused: localhost does not resolve`,
  );
  expect(server.received).toHaveLength(1);
});

test("a failed token request says nothing about the receiver: it changes no window", () => {
  const outcome = notBuilt(new TokenError("token endpoint x answered 503"));
  expect(outcome).toMatchObject({ status: null, error: "token endpoint x answered 503", delivered: false });
  expect(verdictOf(outcome)).toEqual({ webhook: "none", host: "none" });
});
