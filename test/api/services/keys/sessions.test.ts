import { createHash, randomBytes } from "node:crypto";
import { Agent } from "undici";
import { describe, expect, onTestFinished, test } from "vitest";
import { createLocalAuthority } from "../../../../demo/certificates.ts";
import { readConfig } from "../../../../src/config/config.ts";
import { rows } from "../../../../src/db/database.ts";
import { startSession } from "../../../../src/db/keys/sessions.ts";
import { sendRaw } from "../../../support/raw-request.ts";
import { ONLY, startTestApi, type TestApi, useApi } from "../../../support/test-api.ts";

const SESSIONS = "webhook.v1.SessionService";
const LIST_KEYS = "webhook.v1.ApiKeyService/ListApiKeys";
const HOUR = 3_600_000;
/** What a browser says of a request that our own page makes. */
const OWN_PAGE = { "X-Settings-Page": "1", "Sec-Fetch-Site": "same-origin" };

const api = await useApi();

/** One call as the page makes it, in JSON. */
async function call(
  method: string,
  message: object,
  headers: Record<string, string>,
  { url }: { url: string } = api,
) {
  const response = await fetch(`${url}/${method}`, {
    method: "POST",
    headers: { "Content-Type": "application/json", ...headers },
    body: JSON.stringify(message),
  });
  return {
    status: response.status,
    cookie: response.headers.get("set-cookie"),
    // biome-ignore lint/suspicious/noExplicitAny: whatever the method answers
    body: (await response.json()) as any,
  };
}

const signIn = (apiKey: string, headers: Record<string, string> = OWN_PAGE) =>
  call(`${SESSIONS}/SignIn`, { apiKey }, headers);

/** Signs in; answers the headers of a page that is signed in, and the token. */
async function signedIn(apiKey = api.adminKey) {
  const { cookie } = await signIn(apiKey);
  const pair = cookie?.split(";", 1)[0] as string;
  return { headers: { ...OWN_PAGE, Cookie: pair }, token: pair.slice(pair.indexOf("=") + 1) };
}

const hashOf = (token: string) => createHash("sha256").update(token).digest();

async function expiryOf(token: string): Promise<number> {
  const [row] = await rows<{ expires: Date }>(
    api.context.db,
    "select expires from sessions where token_sha256 = :hash",
    { hash: hashOf(token) },
  );
  return row?.expires.getTime() as number;
}

describe("signing in", () => {
  test("§5.3: a key that manages keys opens the page: its cookie stands for the key from then on", async () => {
    const { headers } = await signedIn();
    const listed = await call(LIST_KEYS, {}, headers);
    expect([listed.status, listed.body.apiKeys[0].id]).toEqual([200, api.adminKeyId]);
    const { body } = await call(`${SESSIONS}/GetSession`, {}, headers);
    expect(body.session.apiKey).toMatchObject({ id: api.adminKeyId, name: "admin" });
  });

  test("the cookie is out of scripts' and other sites' reach", async () => {
    const { cookie } = await signIn(api.adminKey);
    expect(cookie).toMatch(/^webhook_session=[\w-]{43}; Path=\/; Max-Age=604800; HttpOnly; SameSite=Strict$/);
  });

  test("the token is stored as its SHA-256 only", async () => {
    const { token } = await signedIn();
    const [row] = await rows<{ text: string }>(
      api.context.db,
      "select sessions::text as text from sessions where token_sha256 = :hash",
      { hash: hashOf(token) },
    );
    expect(row?.text).toContain(hashOf(token).toString("hex"));
    expect(row?.text).not.toContain(token);
  });

  test("a wrong key opens nothing, and no answer repeats it", async () => {
    const { status, cookie, body } = await signIn("whk_wrong");
    expect([status, cookie, body.code]).toEqual([401, null, "unauthenticated"]);
    expect(JSON.stringify(body)).not.toContain("whk_wrong");
  });

  test("wrong keys are slowed down", async () => {
    const limited = await startTestApi({ databaseUrl: api.databaseUrl, limits: { wrongKeysPerMinute: 2 } });
    const statuses: number[] = [];
    for (let guess = 0; guess < 3; guess++) {
      const answer = await call(`${SESSIONS}/SignIn`, { apiKey: `whk_${guess}` }, OWN_PAGE, limited);
      statuses.push(answer.status);
    }
    await limited.stop();
    expect(statuses).toEqual([401, 401, 429]);
  });

  test("a key that can only publish has nothing to see there, and is told which keys have", async () => {
    const { secret } = await api.key({ permissions: ONLY.publish });
    const { status, cookie, body } = await signIn(secret);
    expect([status, cookie]).toEqual([403, null]);
    expect(body.message).toContain("Manage_Api_Keys or Read_Administrative_Data");
  });

  test("a session may do what its key may, and no more", async () => {
    const { secret } = await api.key({ permissions: ONLY.read });
    const { headers } = await signedIn(secret);
    expect((await call("webhook.v1.WebhookService/ListWebhooks", {}, headers)).status).toBe(200);
    expect((await call(LIST_KEYS, {}, headers)).status).toBe(403);
  });
});

describe("the cookie's name and Secure", () => {
  /** Signs in by bytes, since fetch sets Host itself; answers the cookie. */
  async function cookieBy(to: TestApi, headers: Record<string, string>): Promise<string> {
    const body = JSON.stringify({ apiKey: to.adminKey });
    const sent = { Host: "hooks.example", Connection: "close", ...OWN_PAGE, ...headers };
    const fields = Object.entries(sent).map(([name, value]) => `${name}: ${value}\r\n`);
    const answer = await sendRaw(
      to.httpPort,
      `POST /${SESSIONS}/SignIn HTTP/1.1\r\n${fields.join("")}Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
    );
    return /^set-cookie: (.*)\r$/im.exec(answer)?.[1] ?? answer;
  }
  const PLAIN = /^webhook_session=[\w-]{43}; Path=\/; Max-Age=604800; HttpOnly; SameSite=Strict$/;
  const SECURE =
    /^__Host-webhook_session=[\w-]{43}; Path=\/; Max-Age=604800; HttpOnly; SameSite=Strict; Secure$/;

  test("over plain HTTP there is neither, whatever Host and other headers of the caller say", async () => {
    expect(await cookieBy(api, {})).toMatch(PLAIN);
    expect(await cookieBy(api, { "X-Forwarded-Proto": "https", Forwarded: "proto=https" })).toMatch(PLAIN);
  });

  test("a trusted proxy's X-Forwarded-Proto decides, the first of several", async () => {
    const { trustedProxies } = readConfig({ TRUST_PROXY: "127.0.0.0/8" }).limits;
    const behind = await startTestApi({ databaseUrl: api.databaseUrl, limits: { trustedProxies } });
    try {
      expect(await cookieBy(behind, { "X-Forwarded-Proto": "https" })).toMatch(SECURE);
      expect(await cookieBy(behind, { "X-Forwarded-Proto": "HTTPS, http" })).toMatch(SECURE);
      expect(await cookieBy(behind, { "X-Forwarded-Proto": "http, https" })).toMatch(PLAIN);
      expect(await cookieBy(behind, { Host: "localhost" })).toMatch(PLAIN);
    } finally {
      await behind.stop();
    }
  });

  test("over TLS of our own both are there, and only the cookie with the prefix counts", async () => {
    const authority = await createLocalAuthority();
    const tls = await authority.issue(["localhost"]);
    const secure = await startTestApi({ databaseUrl: api.databaseUrl, tls });
    const dispatcher = new Agent({ connect: { ca: authority.cert } });
    try {
      const ask = (method: string, message: object, cookie = "") =>
        dispatcher.request({
          origin: secure.url,
          path: `/${method}`,
          method: "POST",
          headers: { "content-type": "application/json", ...OWN_PAGE, cookie },
          body: JSON.stringify(message),
        });
      const answer = await ask(`${SESSIONS}/SignIn`, { apiKey: secure.adminKey });
      await answer.body.dump();
      const cookie = String(answer.headers["set-cookie"]);
      expect(cookie).toMatch(SECURE);
      const [pair = ""] = cookie.split(";", 1);
      expect((await ask(LIST_KEYS, {}, pair)).statusCode).toBe(200);
      // What somebody on the way of a plain connection, or another host of the domain, could have planted.
      expect((await ask(LIST_KEYS, {}, pair.replace("__Host-", ""))).statusCode).toBe(401);
    } finally {
      await dispatcher.destroy();
      await secure.stop();
    }
  });
});

describe("requests that other pages make a browser send", () => {
  const FORGED: [string, Record<string, string>][] = [
    ["from another site", { "X-Settings-Page": "1", "Sec-Fetch-Site": "cross-site" }],
    ["from another host of the site", { "X-Settings-Page": "1", "Sec-Fetch-Site": "same-site" }],
    ["by a form of our own origin, which sends no such header", { "Sec-Fetch-Site": "same-origin" }],
    ["by an old browser, from another origin", { "X-Settings-Page": "1", Origin: "https://evil.example" }],
    ["by an old browser, from nowhere", { "X-Settings-Page": "1", Origin: "null" }],
    ["that say nothing of their origin", { "X-Settings-Page": "1" }],
  ];

  test.each(FORGED)("%s: the cookie counts for nothing", async (_what, forged) => {
    const { headers } = await signedIn();
    const answer = await call(LIST_KEYS, {}, { Cookie: headers.Cookie, ...forged });
    expect([answer.status, answer.body.code]).toEqual([401, "unauthenticated"]);
  });

  test.each(FORGED)("%s: nobody is signed in or out by them", async (_what, forged) => {
    const { headers } = await signedIn();
    expect((await signIn(api.adminKey, forged)).cookie).toBeNull();
    expect((await call(`${SESSIONS}/SignOut`, {}, { Cookie: headers.Cookie, ...forged })).status).toBe(403);
    expect((await call(LIST_KEYS, {}, headers)).status).toBe(200);
  });

  test("an old browser's own page is known by its Origin", async () => {
    const { headers } = await signedIn();
    const old = { "X-Settings-Page": "1", Origin: api.url, Cookie: headers.Cookie };
    expect((await call(LIST_KEYS, {}, old)).status).toBe(200);
  });

  test("REST takes keys only", async () => {
    const { headers } = await signedIn();
    expect((await api.rest("GET", "/api/webhook/list", { key: null, headers })).status).toBe(401);
  });

  test("no other origin is allowed to send the header", async () => {
    const answer = await fetch(`${api.url}/${LIST_KEYS}`, {
      method: "OPTIONS",
      headers: {
        Origin: "https://evil.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "x-settings-page",
      },
    });
    expect(answer.headers.get("access-control-allow-origin")).toBeNull();
  });
});

describe("unknown sessions", () => {
  const GET_SESSION = `${SESSIONS}/GetSession`;
  const SIGN_OUT = `${SESSIONS}/SignOut`;
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
    const statuses = async () => {
      const found: number[] = [];
      for (const method of [LIST_KEYS, GET_SESSION, SIGN_OUT])
        found.push((await call(method, {}, ofUnknown(), limited)).status);
      return found;
    };
    expect(await statuses()).toEqual([401, 401, 200]);
    let queries = 0;
    limited.context.db.on("query", () => {
      queries += 1;
    });
    for (let n = 0; n < 10; n += 1) expect(await statuses()).toEqual([429, 429, 429]);
    expect(queries).toBe(0);
    const response = await fetch(`${limited.url}/${GET_SESSION}`, {
      method: "POST",
      headers: { "Content-Type": "application/json", ...ofUnknown() },
      body: "{}",
    });
    expect(Number(response.headers.get("retry-after"))).toBeGreaterThan(0);
    expect(((await response.json()) as { message: string }).message).toMatch(
      /sign in with an API key, or retry in \d+ s$/,
    );
  });

  test("hold up neither signing in with a key nor sessions that this process has seen, and are counted apart from wrong keys", async () => {
    const limited = await startLimited(1);
    const enter = async (headers: Record<string, string>) => {
      const answer = await call(`${SESSIONS}/SignIn`, { apiKey: limited.adminKey }, headers, limited);
      return { ...OWN_PAGE, Cookie: answer.cookie?.split(";", 1)[0] as string };
    };
    const earlier = await enter(OWN_PAGE);
    const ended = ofUnknown();
    expect((await call(GET_SESSION, {}, ended, limited)).status).toBe(401);
    expect((await call(GET_SESSION, {}, ended, limited)).status).toBe(429);
    // In the browser of the ended session, which still sends its cookie.
    const later = await enter(ended);
    for (const headers of [earlier, later])
      expect((await call(LIST_KEYS, {}, headers, limited)).status).toBe(200);
    const wrongKey = { "X-Service-Key": "wrong" };
    expect((await call(LIST_KEYS, {}, wrongKey, limited)).status).toBe(401);
    expect((await call(LIST_KEYS, {}, wrongKey, limited)).status).toBe(429);
    expect((await call(LIST_KEYS, {}, later, limited)).status).toBe(200);
  });

  test("count a session from when it has ended", async () => {
    const limited = await startLimited(1);
    const signIn = { apiKey: limited.adminKey };
    const { cookie } = await call(`${SESSIONS}/SignIn`, signIn, OWN_PAGE, limited);
    const headers = { ...OWN_PAGE, Cookie: cookie?.split(";", 1)[0] as string };
    await call(SIGN_OUT, {}, headers, limited);
    const statuses: number[] = [];
    for (let n = 0; n < 2; n += 1) statuses.push((await call(LIST_KEYS, {}, headers, limited)).status);
    expect(statuses).toEqual([401, 429]);
  });
});

describe("a session ends", () => {
  test("in the service, when its user signs out", async () => {
    const { headers } = await signedIn();
    const out = await call(`${SESSIONS}/SignOut`, {}, headers);
    expect([out.status, out.cookie?.includes("Max-Age=0")]).toEqual([200, true]);
    expect((await call(LIST_KEYS, {}, headers)).status).toBe(401);
  });

  test("at once, when its key is revoked", async () => {
    const { id, secret } = await api.key();
    const { headers } = await signedIn(secret);
    const admin = { "X-Service-Key": api.adminKey };
    await call("webhook.v1.ApiKeyService/RevokeApiKey", { apiKeyId: id, deleteWebhooks: {} }, admin);
    expect((await call(LIST_KEYS, {}, headers)).status).toBe(401);
  });

  test("at once, when its key is rotated, even where the old secret works on for a while", async () => {
    const { id, secret } = await api.key();
    const { headers } = await signedIn(secret);
    const admin = { "X-Service-Key": api.adminKey };
    await call("webhook.v1.ApiKeyService/RotateApiKey", { apiKeyId: id, gracePeriod: "3600s" }, admin);
    expect((await call(LIST_KEYS, {}, headers)).status).toBe(401);
    expect((await signIn(secret)).status).toBe(200);
  });

  test("with the grace period of the secret that started it, where the key has another by then", async () => {
    const { id, secret } = await api.key();
    const admin = { "X-Service-Key": api.adminKey };
    const rotate = (message: object) =>
      call("webhook.v1.ApiKeyService/RotateApiKey", { apiKeyId: id, ...message }, admin);
    const { secret: current } = (await rotate({ gracePeriod: "3600s" })).body;
    const [old, recent] = [await signedIn(secret), await signedIn(current)];
    expect(Math.abs((await expiryOf(old.token)) - Date.now() - HOUR)).toBeLessThan(HOUR / 60);
    expect(Math.abs((await expiryOf(recent.token)) - Date.now() - 12 * HOUR)).toBeLessThan(HOUR / 60);
    // Used while it is near its end: a use does not carry it beyond the grace period.
    const near = "update sessions set expires = now() + interval '1 minute' where token_sha256 = :hash";
    await rows(api.context.db, near, { hash: hashOf(old.token) });
    expect((await call(LIST_KEYS, {}, old.headers)).status).toBe(200);
    expect(Math.abs((await expiryOf(old.token)) - Date.now() - HOUR)).toBeLessThan(HOUR / 60);
    const ended = "update api_key_old_secrets set expires = now() where api_key_id = :id::uuid";
    await rows(api.context.db, ended, { id });
    expect((await call(LIST_KEYS, {}, old.headers)).status).toBe(401);
    expect((await call(LIST_KEYS, {}, recent.headers)).status).toBe(200);
  });

  test("at once, when the secret that started it is revoked by a rotation without a grace period", async () => {
    const { id, secret } = await api.key();
    const admin = { "X-Service-Key": api.adminKey };
    const rotate = (message: object) =>
      call("webhook.v1.ApiKeyService/RotateApiKey", { apiKeyId: id, ...message }, admin);
    await rotate({ gracePeriod: "3600s" });
    const { headers } = await signedIn(secret);
    expect((await call(LIST_KEYS, {}, headers)).status).toBe(200);
    await rotate({});
    expect((await call(LIST_KEYS, {}, headers)).status).toBe(401);
  });

  test("when its key has 100 later ones", async () => {
    const { id, secret } = await api.key();
    const first = await signedIn(secret);
    for (let later = 0; later < 99; later++) await startSession(api.context.db, id, secret);
    expect((await call(LIST_KEYS, {}, first.headers)).status).toBe(200);
    const last = await signedIn(secret);
    expect((await call(LIST_KEYS, {}, first.headers)).status).toBe(401);
    expect((await call(LIST_KEYS, {}, last.headers)).status).toBe(200);
    const [left] = await rows<{ n: number }>(
      api.context.db,
      "select count(*)::int as n from sessions where api_key_id = :id::uuid",
      { id },
    );
    expect(left?.n).toBe(100);
  });

  test("when nobody has used it for 12 hours; each use begins them anew", async () => {
    const { headers, token } = await signedIn();
    expect(Math.abs((await expiryOf(token)) - Date.now() - 12 * HOUR)).toBeLessThan(HOUR / 60);
    const set = "update sessions set expires = now() + :left::interval where token_sha256 = :hash";
    await rows(api.context.db, set, { left: "1 minute", hash: hashOf(token) });
    expect((await call(LIST_KEYS, {}, headers)).status).toBe(200);
    expect(Math.abs((await expiryOf(token)) - Date.now() - 12 * HOUR)).toBeLessThan(HOUR / 60);
    await rows(api.context.db, set, { left: "-1 second", hash: hashOf(token) });
    expect((await call(LIST_KEYS, {}, headers)).status).toBe(401);
  });

  test("after seven days, however much it is used", async () => {
    const { headers, token } = await signedIn();
    await rows(
      api.context.db,
      `update sessions set started = now() - interval '7 days' + interval '1 hour', expires = now() + interval '1 minute'
        where token_sha256 = :hash`,
      { hash: hashOf(token) },
    );
    expect((await call(LIST_KEYS, {}, headers)).status).toBe(200);
    expect(Math.abs((await expiryOf(token)) - Date.now() - HOUR)).toBeLessThan(HOUR / 60);
  });

  test("for whoever signs in again in the same browser: the earlier one is over", async () => {
    const { headers } = await signedIn();
    await signIn(api.adminKey, headers);
    expect((await call(LIST_KEYS, {}, headers)).status).toBe(401);
  });
});
