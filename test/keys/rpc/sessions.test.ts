import { createHash, randomBytes } from "node:crypto";
import { Agent } from "undici";
import { describe, expect, onTestFinished, test } from "vitest";
import { createLocalAuthority } from "../../../demo/certificates.ts";
import { readConfig } from "../../../src/config/config.ts";
import { startSession } from "../../../src/keys/sessions.ts";
import { rows } from "../../../src/lib/pg/database.ts";
import { expectWithin, timed } from "../../support/database-time.ts";
import { sendRaw } from "../../support/raw-request.ts";
import { ONLY, startTestApi, type TestApi, useApi } from "../../support/test-api.ts";

const SIGN_IN = "webhook.v1.SessionService/SignIn";
const SIGN_OUT = "webhook.v1.SessionService/SignOut";
const GET_SESSION = "webhook.v1.SessionService/GetSession";
const LIST_KEYS = "webhook.v1.ApiKeyService/ListApiKeys";
const HOUR = 3_600_000;
const GRACE = { gracePeriod: { seconds: 3_600n } };
/** What a browser says of a request that our own page makes. */
const OWN_PAGE = { "X-Settings-Page": "1", "Sec-Fetch-Site": "same-origin" };
type Headers = Record<string, string>;

const api = await useApi();
const { db } = api.context;
const { keys } = api;

/** One call as the page makes it, in JSON. */
async function call(method: string, message: object, headers: Headers, { url }: { url: string } = api) {
  const response = await fetch(`${url}/${method}`, {
    method: "POST",
    headers: { "Content-Type": "application/json", ...headers },
    body: JSON.stringify(message),
  });
  return {
    status: response.status,
    cookie: response.headers.get("set-cookie"),
    retryAfter: response.headers.get("retry-after"),
    // biome-ignore lint/suspicious/noExplicitAny: whatever the method answers
    body: (await response.json()) as any,
  };
}

const signIn = (apiKey: string, headers: Headers = OWN_PAGE, to = api) =>
  call(SIGN_IN, { apiKey }, headers, to);

/** Signs in; answers the headers of a page that is signed in, and the token. */
async function signedIn(apiKey = api.adminKey, to = api) {
  const { cookie } = await signIn(apiKey, OWN_PAGE, to);
  const pair = cookie?.split(";", 1)[0] as string;
  return { headers: { ...OWN_PAGE, Cookie: pair }, token: pair.slice(pair.indexOf("=") + 1) };
}

const listKeys = async (headers: Headers, to = api) => (await call(LIST_KEYS, {}, headers, to)).status;
const hashOf = (token: string) => createHash("sha256").update(token).digest();
const rowOf = (token: string) => db("sessions").where("token_sha256", hashOf(token)).first();

/** Changes a session's times by SQL. */
const setTimes = (token: string, times: string) =>
  rows(db, `update sessions set ${times} where token_sha256 = :hash`, { hash: hashOf(token) });

describe("signing in", () => {
  test("§5.3: a key that manages keys signs in to the page: its cookie then authenticates as the key", async () => {
    const { headers, token } = await signedIn();
    const { status, body } = await call(LIST_KEYS, {}, headers);
    expect([status, body.apiKeys[0].id]).toEqual([200, api.adminKeyId]);
    const { session } = (await call(GET_SESSION, {}, headers)).body;
    expect(session.apiKey).toMatchObject({ id: api.adminKeyId, name: "admin" });
    const stored = "select s::text as text from sessions s where token_sha256 = :hash";
    expect(await rows(db, stored, { hash: hashOf(token) })).toEqual([
      { text: expect.not.stringContaining(token) },
    ]);
  });

  test("a wrong key and a key that can only publish open no session; the latter's error names the permissions", async () => {
    const wrong = await signIn("whk_wrong");
    expect(wrong).toMatchObject({ status: 401, cookie: null, body: { code: "unauthenticated" } });
    expect(JSON.stringify(wrong.body)).not.toContain("whk_wrong");
    const publisher = await signIn((await api.key({ permissions: ONLY.publish })).secret);
    const message = expect.stringContaining("Manage_Api_Keys or Read_Administrative_Data");
    expect(publisher).toMatchObject({ status: 403, cookie: null, body: { message } });
  });

  test("a session may do what its key may, and no more", async () => {
    const { headers } = await signedIn((await api.key({ permissions: ONLY.read })).secret);
    expect((await call("webhook.v1.WebhookService/ListWebhooks", {}, headers)).status).toBe(200);
    expect(await listKeys(headers)).toBe(403);
    expect((await api.rest("GET", "/api/webhook/list", { key: null, headers })).status).toBe(401);
  });
});

const { trustedProxies } = readConfig({ TRUST_PROXY: "127.0.0.0/8" }).limits;

/** Starts an API for the test, on the shared database. */
async function startOwn(options: Parameters<typeof startTestApi>[0]): Promise<TestApi> {
  const own = await startTestApi({ databaseUrl: api.databaseUrl, ...options });
  onTestFinished(() => own.stop());
  return own;
}

/** Signs in by bytes, since fetch sets Host itself; answers the cookie, or else the whole answer. */
async function cookieBy(to: TestApi, headers: Headers): Promise<string> {
  const body = JSON.stringify({ apiKey: to.adminKey });
  const sent = { Host: "hooks.example", Connection: "close", ...headers };
  const fields = Object.entries(sent).map(([name, value]) => `${name}: ${value}\r\n`);
  const answer = await sendRaw(
    to.httpPort,
    `POST /${SIGN_IN} HTTP/1.1\r\n${fields.join("")}Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
  );
  return /^set-cookie: (.*)\r$/im.exec(answer)?.[1] ?? answer;
}

describe("the cookie's name and Secure", () => {
  const PLAIN = /^webhook_session=[\w-]{43}; Path=\/; Max-Age=604800; HttpOnly; SameSite=Strict$/;
  const SECURE =
    /^__Host-webhook_session=[\w-]{43}; Path=\/; Max-Age=604800; HttpOnly; SameSite=Strict; Secure$/;

  test("belong to plain HTTP, whatever the caller's headers say, unless a trusted proxy says https first", async () => {
    const behind = await startOwn({ limits: { trustedProxies } });
    for (const [to, headers, cookie] of [
      [api, { "X-Forwarded-Proto": "https", Forwarded: "proto=https" }, PLAIN],
      [behind, { "X-Forwarded-Proto": "https" }, SECURE],
      [behind, { "X-Forwarded-Proto": "HTTPS, http" }, SECURE],
      [behind, { "X-Forwarded-Proto": "http, https" }, PLAIN],
      [behind, { Host: "localhost" }, PLAIN],
    ] as const)
      expect(await cookieBy(to, { ...OWN_PAGE, ...headers })).toMatch(cookie);
  });

  test("below a path prefix, other applications of the host do not get the cookie, and it has another name over TLS", async () => {
    const below = await startOwn({ basePath: "/webhooks", limits: { trustedProxies } });
    const behind = await startOwn({ limits: { trustedProxies } });
    const https = { ...OWN_PAGE, "X-Forwarded-Proto": "https" };
    const ending = "Path=/webhooks; Max-Age=604800; HttpOnly; SameSite=Strict";
    const secure = new RegExp(`^__Secure-webhook_session=[\\w-]{43}; ${ending}; Secure$`);
    expect(await cookieBy(below, OWN_PAGE)).toMatch(new RegExp(`^webhook_session=[\\w-]{43}; ${ending}$`));
    expect(await cookieBy(behind, { ...https, "X-Forwarded-Prefix": "/webhooks" })).toMatch(secure);
    const cookie = await cookieBy(below, https);
    expect(cookie).toMatch(secure);
    const [pair = ""] = cookie.split(";", 1);
    expect(await listKeys({ ...https, Cookie: pair }, below)).toBe(200);
    for (const other of ["__Host-webhook_session", "webhook_session"])
      expect(await listKeys({ ...https, Cookie: pair.replace(/^[^=]+/, other) }, below)).toBe(401);
    expect((await call(SIGN_OUT, {}, { ...https, Cookie: pair }, below)).cookie).toBe(
      "__Secure-webhook_session=; Path=/webhooks; Max-Age=0; HttpOnly; SameSite=Strict; Secure",
    );
    expect(await listKeys({ ...https, Cookie: pair }, below)).toBe(401);
  });

  test("over TLS of our own both are there, and only the cookie with the prefix counts", async () => {
    const authority = await createLocalAuthority();
    const tls = await authority.issue(["localhost"]);
    const secure = await startTestApi({ databaseUrl: api.databaseUrl, tls });
    const dispatcher = new Agent({ connect: { ca: authority.cert } });
    onTestFinished(async () => {
      await dispatcher.destroy();
      await secure.stop();
    });
    const headers = { "content-type": "application/json", ...OWN_PAGE };
    const ask = (method: string, message: object, cookie = "") =>
      dispatcher.request({
        origin: secure.url,
        path: `/${method}`,
        method: "POST",
        headers: { ...headers, cookie },
        body: JSON.stringify(message),
      });
    const answer = await ask(SIGN_IN, { apiKey: secure.adminKey });
    await answer.body.dump();
    const cookie = String(answer.headers["set-cookie"]);
    expect(cookie).toMatch(SECURE);
    const [pair = ""] = cookie.split(";", 1);
    expect((await ask(LIST_KEYS, {}, pair)).statusCode).toBe(200);
    // What somebody on the way of a plain connection, or another host of the domain, could have planted.
    expect((await ask(LIST_KEYS, {}, pair.replace("__Host-", ""))).statusCode).toBe(401);
  });
});

describe("requests that other pages make a browser send", () => {
  test.each<[string, Headers]>([
    ["from another site", { "X-Settings-Page": "1", "Sec-Fetch-Site": "cross-site" }],
    ["from another host of the site", { "X-Settings-Page": "1", "Sec-Fetch-Site": "same-site" }],
    ["by a form of our own origin, which sends no such header", { "Sec-Fetch-Site": "same-origin" }],
    ["by an old browser, from another origin", { "X-Settings-Page": "1", Origin: "https://evil.example" }],
    ["by an old browser, from nowhere", { "X-Settings-Page": "1", Origin: "null" }],
    ["that say nothing of their origin", { "X-Settings-Page": "1" }],
  ])("%s: the cookie counts for nothing, and nobody is signed in or out by them", async (_what, forged) => {
    const { headers } = await signedIn();
    const withCookie = { Cookie: headers.Cookie, ...forged };
    const refused = { status: 401, body: { code: "unauthenticated" } };
    expect(await call(LIST_KEYS, {}, withCookie)).toMatchObject(refused);
    expect((await signIn(api.adminKey, forged)).cookie).toBeNull();
    expect((await call(SIGN_OUT, {}, withCookie)).status).toBe(403);
    expect(await listKeys(headers)).toBe(200);
  });

  test("an old browser's own page is known by its Origin, and no other origin may send the header", async () => {
    const { headers } = await signedIn();
    expect(await listKeys({ "X-Settings-Page": "1", Origin: api.url, Cookie: headers.Cookie })).toBe(200);
    const asked = {
      "Access-Control-Request-Method": "POST",
      "Access-Control-Request-Headers": "x-settings-page",
    };
    const answer = await fetch(`${api.url}/${LIST_KEYS}`, {
      method: "OPTIONS",
      headers: { Origin: "https://evil.example", ...asked },
    });
    expect(answer.headers.get("access-control-allow-origin")).toBeNull();
  });
});

describe("behind a proxy that changes Host or the scheme, a browser that sends no Sec-Fetch-Site", () => {
  const COOKIE = /^(?:__Host-)?webhook_session=/;
  const ORIGIN = "http://hooks.example:8080";
  const CHANGED = { Host: "backend:80", Origin: ORIGIN };

  test.each<[what: string, trusted: boolean, headers: Headers]>([
    ["the Host that the browser sends", false, { Host: "hooks.example:8080", Origin: ORIGIN }],
    ["X-Forwarded-Host", true, { ...CHANGED, "X-Forwarded-Host": "hooks.example:8080" }],
    ["the first X-Forwarded-Host", true, { ...CHANGED, "X-Forwarded-Host": "HOOKS.example:8080, inner:1" }],
    [
      "X-Forwarded-Host and -Port",
      true,
      { ...CHANGED, "X-Forwarded-Host": "hooks.example", "X-Forwarded-Port": "8080" },
    ],
    [
      "X-Forwarded-Host, -Port and -Proto",
      true,
      {
        Host: "backend",
        Origin: "https://hooks.example",
        "X-Forwarded-Host": "hooks.example",
        "X-Forwarded-Port": "443",
        "X-Forwarded-Proto": "https",
      },
    ],
    ["an IPv6 address", true, { ...CHANGED, Origin: "http://[::1]:80", "X-Forwarded-Host": "[::1]" }],
    [
      "X-Forwarded-Proto on this machine",
      true,
      { Origin: "http://localhost", Host: "localhost", "X-Forwarded-Proto": "https" },
    ],
  ])("signs in by %s", async (_what, trusted, headers) => {
    const to = trusted ? await startOwn({ limits: { trustedProxies } }) : api;
    expect(await cookieBy(to, { "X-Settings-Page": "1", ...headers })).toMatch(COOKIE);
  });

  const OPENED = `but the browser opened ${ORIGIN}`;
  test.each<[what: string, trusted: boolean, headers: Headers, error: string]>([
    [
      "Host, if the proxy is not trusted",
      false,
      { ...CHANGED, "X-Forwarded-Host": "hooks.example:8080" },
      `Host is backend:80, ${OPENED}: let the proxy pass on the Host of the browser's request, or set X-Forwarded-Host to it and add the proxy's address to TRUST_PROXY`,
    ],
    [
      "Host, if there is no X-Forwarded-Host",
      true,
      CHANGED,
      `Host is backend:80, ${OPENED}: let the proxy pass on the Host of the browser's request, or set X-Forwarded-Host to it`,
    ],
    [
      "X-Forwarded-Host without its port",
      true,
      { ...CHANGED, "X-Forwarded-Host": "hooks.example" },
      `X-Forwarded-Host is hooks.example, ${OPENED}: let the proxy set X-Forwarded-Host to the Host of the browser's request, hooks.example:8080`,
    ],
    [
      "X-Forwarded-Proto, if the browser would reject the cookie",
      true,
      { ...CHANGED, "Sec-Fetch-Site": "same-origin", "X-Forwarded-Proto": "https" },
      `X-Forwarded-Proto is https, ${OPENED} and would reject the session's Secure cookie: let the proxy set X-Forwarded-Proto to the scheme of the browser's request, or open the page by https`,
    ],
  ])("is not signed in, and the error names %s, and what to set", async (_what, trusted, headers, error) => {
    const to = trusted ? await startOwn({ limits: { trustedProxies } }) : api;
    const answer = await cookieBy(to, { "X-Settings-Page": "1", ...headers });
    expect(answer).toMatch(/^HTTP\/1.1 403 /);
    const { message, details } = JSON.parse(answer.slice(answer.indexOf("\r\n\r\n")));
    expect([message, details[0].debug.reason]).toEqual([error, "PROXY_HEADER_WRONG"]);
  });

  test("is not repeated a header of any length", async () => {
    const answer = await cookieBy(api, {
      "X-Settings-Page": "1",
      Host: "b",
      Origin: `http://${"a".repeat(5_000)}`,
    });
    expect(answer).toContain(`${"a".repeat(50)}…`);
    expect(answer.length).toBeLessThan(1_500);
  });
});

describe("wrong keys and unknown sessions", () => {
  const ofUnknown = () => ({
    ...OWN_PAGE,
    Cookie: `webhook_session=${randomBytes(32).toString("base64url")}`,
  });

  async function startLimited(wrongKeysPerMinute: number): Promise<TestApi> {
    const limited = await startTestApi({ databaseUrl: api.databaseUrl, limits: { wrongKeysPerMinute } });
    onTestFinished(() => limited.stop());
    return limited;
  }

  test("are looked up so often in a minute for an address; then each method answers 429 without a query", async () => {
    const limited = await startLimited(3);
    const ask = (method: string) => call(method, {}, ofUnknown(), limited);
    const methods = [LIST_KEYS, GET_SESSION, SIGN_OUT];
    const statuses: number[] = [];
    for (const method of methods) statuses.push((await ask(method)).status);
    expect(statuses).toEqual([401, 401, 200]);
    let queries = 0;
    limited.context.db.on("query", () => {
      queries += 1;
    });
    for (const method of [...methods, ...methods]) {
      const { status, retryAfter, body } = await ask(method);
      expect([status, Number(retryAfter) > 0]).toEqual([429, true]);
      expect(body.message).toMatch(/sign in with an API key, or retry in \d+ s$/);
    }
    expect(queries).toBe(0);
  });

  test("hold up neither signing in nor sessions that this process has seen, until they end, and are counted apart", async () => {
    const limited = await startLimited(1);
    const earlier = (await signedIn(limited.adminKey, limited)).headers;
    const ended = ofUnknown();
    for (const status of [401, 429])
      expect((await call(GET_SESSION, {}, ended, limited)).status).toBe(status);
    // In the browser of the ended session, which still sends its cookie.
    const { cookie } = await signIn(limited.adminKey, ended, limited);
    const later = { ...OWN_PAGE, Cookie: cookie?.split(";", 1)[0] as string };
    for (const headers of [earlier, later]) expect(await listKeys(headers, limited)).toBe(200);
    for (const status of [401, 429]) expect((await signIn("wrong", OWN_PAGE, limited)).status).toBe(status);
    expect(await listKeys(later, limited)).toBe(200);
    await call(SIGN_OUT, {}, later, limited);
    expect([await listKeys(later, limited), await listKeys(later, limited)]).toEqual([401, 429]);
  });
});

describe("a session ends", () => {
  test.each<[string, (key: { id: string; headers: Headers }) => Promise<unknown>]>([
    ["in the service, when its user signs out", ({ headers }) => call(SIGN_OUT, {}, headers)],
    ["when its user signs in again in the same browser", ({ headers }) => signIn(api.adminKey, headers)],
    ["at once, when its key is revoked", ({ id }) => api.revoke(id)],
    [
      "at once, when its key is rotated, even where the old secret works on for a while",
      ({ id }) => keys.rotateApiKey({ apiKeyId: id, ...GRACE }),
    ],
  ])("%s", async (_, end) => {
    const { id, secret } = await api.key();
    const { headers } = await signedIn(secret);
    expect(await listKeys(headers)).toBe(200);
    await end({ id, headers });
    expect(await listKeys(headers)).toBe(401);
  });

  test("with the grace period of the secret that started it, where the key has another by then", async () => {
    const { id, secret } = await api.key();
    const [{ secret: current }, rotated] = await timed(db, () =>
      keys.rotateApiKey({ apiKeyId: id, ...GRACE }),
    );
    const old = await signedIn(secret);
    const [recent, begun] = await timed(db, () => signedIn(current));
    expectWithin(rotated, (await rowOf(old.token))?.expires, HOUR);
    expectWithin(begun, (await rowOf(recent.token))?.expires, 12 * HOUR);
    // Used while it is near its end: a use does not carry it beyond the grace period.
    await setTimes(old.token, "expires = now() + interval '1 minute'");
    expect(await listKeys(old.headers)).toBe(200);
    expectWithin(rotated, (await rowOf(old.token))?.expires, HOUR);
    // A rotation without a grace period revokes the old secret.
    await keys.rotateApiKey({ apiKeyId: id });
    expect([await listKeys(old.headers), await listKeys(recent.headers)]).toEqual([401, 401]);
  });

  test("when its key has 100 later ones", async () => {
    const { id, secret } = await api.key();
    const first = await signedIn(secret);
    for (let later = 0; later < 99; later++) await startSession(db, id, secret);
    expect(await listKeys(first.headers)).toBe(200);
    const last = await signedIn(secret);
    expect([await listKeys(first.headers), await listKeys(last.headers)]).toEqual([401, 200]);
    expect(await db("sessions").where("api_key_id", id)).toHaveLength(100);
  });

  test("after 12 hours without use, and after seven days", async () => {
    const [{ headers, token }, begun] = await timed(db, () => signedIn());
    expectWithin(begun, (await rowOf(token))?.expires, 12 * HOUR);
    const nearItsEnd = "expires = now() + interval '1 minute'";
    await setTimes(token, nearItsEnd);
    const [status, used] = await timed(db, () => listKeys(headers));
    expect(status).toBe(200);
    expectWithin(used, (await rowOf(token))?.expires, 12 * HOUR);
    await setTimes(token, `started = now() - interval '7 days' + interval '1 hour', ${nearItsEnd}`);
    expect(await listKeys(headers)).toBe(200);
    const { started, expires } = (await rowOf(token)) as { started: Date; expires: Date };
    expect(expires.getTime() - started.getTime()).toBe(7 * 24 * HOUR);
    await setTimes(token, "expires = now() - interval '1 second'");
    expect(await listKeys(headers)).toBe(401);
  });
});
