import { type Client, Code, createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { Agent } from "undici";
import { afterEach, describe, expect, test } from "vitest";
import { createLocalAuthority } from "../../../demo/certificates.ts";
import { ApiKeyService } from "../../../gen/webhook/v1/api_key_pb.ts";
import { EventService } from "../../../gen/webhook/v1/event_pb.ts";
import { WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import { createWrongKeys, MAX_ADDRESSES, MAX_SEEN_KEYS } from "../../../src/api/auth/wrong-keys.ts";
import { readConfig } from "../../../src/config/config.ts";
import { connect, grpc, grpcWeb } from "../../support/clients.ts";
import { failure } from "../../support/failure.ts";
import { ONLY, startTestApi, type TestApi } from "../../support/test-api.ts";

let api: TestApi;
afterEach(() => api.stop());

const LIST = ["GET", "/api/webhook/list"] as const;
const seconds = (text: string | null) => {
  expect(text).toMatch(/^[1-9]\d*$/);
  const value = Number(text);
  expect(value).toBeLessThanOrEqual(60);
  return value;
};

describe("wrong keys", () => {
  const start = async (wrongKeysPerMinute: number, more = {}) => {
    api = await startTestApi({ limits: { wrongKeysPerMinute, ...more } });
  };
  const wrong = (headers: Record<string, string> = {}) => api.rest(...LIST, { key: "wrong", headers });

  test("are 401 so often in a minute and then 429, with the time to wait, in the envelope", async () => {
    await start(3);
    for (let n = 0; n < 3; n += 1) expect((await wrong()).status).toBe(401);
    const { status, headers, envelope } = await wrong();
    expect(status).toBe(429);
    const wait = seconds(headers.get("Retry-After"));
    expect(envelope).toEqual({
      Success: false,
      Data: null,
      Warnings: [expect.stringMatching(/^too many wrong API keys.*not checked.*retry in \d+ s$/)],
    });
    expect(envelope.Warnings[0]).toContain(` ${wait} s`);
  });

  test("are told to wait in every protocol alike, for one address has one count", async () => {
    await start(2);
    await wrong();
    await wrong();
    for (const transport of [grpc(api, "wrong"), connect(api, "wrong"), grpcWeb(api, "wrong")]) {
      const refused = await failure(createClient(WebhookService, transport).listWebhooks({}));
      expect(refused?.code).toBe(Code.ResourceExhausted);
      seconds(refused?.metadata.get("Retry-After") ?? null);
    }
    expect((await api.rest("POST", "/api/webhook", { key: "wrong", raw: { body: "{" } })).status).toBe(429);
  });

  /** Statements about API keys that the service makes while `act` runs. */
  async function lookUpsOf(act: () => Promise<unknown>): Promise<number> {
    let lookUps = 0;
    const note = ({ sql }: { sql: string }) => {
      if (sql.includes("secret_sha256")) lookUps += 1;
    };
    api.context.db.on("query", note);
    try {
      await act();
    } finally {
      api.context.db.removeListener("query", note);
    }
    return lookUps;
  }

  test("hold up no key of the same address that this process has seen valid", async () => {
    await start(1);
    expect((await api.rest(...LIST)).status).toBe(200);
    for (let n = 0; n < 5; n += 1) await wrong();
    expect((await wrong()).status).toBe(429);
    expect((await api.rest(...LIST)).status).toBe(200);
    await expect(createClient(WebhookService, grpc(api)).listWebhooks({})).resolves.toBeDefined();
  });

  test("are refused without a look-up once their address is throttled, in every protocol and on the sign-in page", async () => {
    await start(2);
    expect(await lookUpsOf(wrong)).toBeGreaterThan(0);
    await wrong();
    const guesses = async () => {
      for (let n = 0; n < 20; n += 1) {
        expect((await api.rest(...LIST, { key: `guess-${n}` })).status).toBe(429);
        const call = createClient(WebhookService, grpc(api, `guess-${n}`)).listWebhooks({});
        expect((await failure(call))?.code).toBe(Code.ResourceExhausted);
        const signIn = await fetch(`${api.url}/webhook.v1.SessionService/SignIn`, {
          method: "POST",
          headers: {
            "Content-Type": "application/json",
            "X-Settings-Page": "1",
            "Sec-Fetch-Site": "same-origin",
          },
          body: JSON.stringify({ apiKey: `guess-${n}` }),
        });
        expect(signIn.status).toBe(429);
      }
    };
    expect(await lookUpsOf(guesses)).toBe(0);
  });

  test("of a throttled address do not keep a key valid that was revoked meanwhile", async () => {
    await start(1);
    const { id, secret } = await api.key();
    expect((await api.rest(...LIST)).status).toBe(200);
    expect((await api.rest(...LIST, { key: secret })).status).toBe(200);
    await wrong();
    expect((await api.rest(...LIST, { key: secret })).status).toBe(200);
    await createClient(ApiKeyService, grpc(api)).revokeApiKey({
      apiKeyId: id,
      webhooks: { case: "deleteWebhooks", value: {} },
    });
    // It is looked up, since it was seen valid, and forgotten then.
    expect(await lookUpsOf(async () => api.rest(...LIST, { key: secret }))).toBeGreaterThan(0);
    const lookUps = await lookUpsOf(async () => {
      expect((await api.rest(...LIST, { key: secret })).status).toBe(429);
    });
    expect(lookUps).toBe(0);
  });

  test("are counted where a key was sent: a missing one is only told so", async () => {
    await start(1);
    for (let n = 0; n < 5; n += 1) expect((await api.rest(...LIST, { key: null })).status).toBe(401);
    expect((await wrong()).status).toBe(401);
  });

  test("are counted by what a trusted proxy says, and by the proxy's own address without trust", async () => {
    const { trustedProxies } = readConfig({ TRUST_PROXY: "127.0.0.0/8,::1/128" }).limits;
    await start(1, { trustedProxies });
    const from = (addresses: string) => wrong({ "X-Forwarded-For": addresses });
    expect((await from("203.0.113.1")).status).toBe(401);
    expect((await from("203.0.113.1")).status).toBe(429);
    expect((await from("203.0.113.2")).status).toBe(401);
    // Whatever the caller itself has put before the proxy's entry counts for nothing.
    expect((await from("198.51.100.7, 203.0.113.2")).status).toBe(429);
    expect((await from("203.0.113.3, 127.0.0.1")).status).toBe(401);
    expect((await from("203.0.113.3")).status).toBe(429);
    // Some proxies add the port of each connection.
    expect((await from("203.0.113.4:50123")).status).toBe(401);
    expect((await from("203.0.113.4:50124")).status).toBe(429);
    expect((await from("[2001:db8:1::1]:50123")).status).toBe(401);
    expect((await from("[2001:db8:1::2]")).status).toBe(429);
    expect((await from("203.0.113.5, 127.0.0.1:50123")).status).toBe(401);
    expect((await from("203.0.113.5, [::1]:50124")).status).toBe(429);
    const client = createClient(WebhookService, grpc(api, "wrong"));
    const headers = { "X-Forwarded-For": "203.0.113.1" };
    expect((await failure(client.listWebhooks({}, { headers })))?.code).toBe(Code.ResourceExhausted);
    await api.stop();

    await start(1);
    expect((await from("203.0.113.1")).status).toBe(401);
    expect((await from("203.0.113.2")).status).toBe(429);
  });

  test("cannot be moved to another address by a header of the caller's own", async () => {
    await start(1);
    const client = createClient(WebhookService, grpc(api, "wrong"));
    const codes = [];
    for (const address of ["198.51.100.1", "198.51.100.2"]) {
      const headers = { "X-Caller-Address": address };
      codes.push((await failure(client.listWebhooks({}, { headers })))?.code);
      codes.push((await wrong(headers)).status);
    }
    expect(codes).toEqual([Code.Unauthenticated, 429, Code.ResourceExhausted, 429]);
  });

  test("are counted over TLS too, in HTTP/1.1 and HTTP/2", async () => {
    const authority = await createLocalAuthority();
    api = await startTestApi({
      tls: await authority.issue(["localhost"]),
      limits: { wrongKeysPerMinute: 2 },
    });
    const statuses: number[] = [];
    for (const allowH2 of [false, true, true]) {
      const dispatcher = new Agent({ connect: { ca: authority.cert }, allowH2 });
      const answer = await dispatcher.request({
        origin: api.url,
        path: "/api/webhook/list",
        method: "GET",
        headers: { "X-Service-Key": "wrong" },
      });
      await answer.body.dump();
      statuses.push(answer.statusCode);
      await dispatcher.close();
    }
    expect(statuses).toEqual([401, 401, 429]);
    const transport = createGrpcTransport({ baseUrl: api.url, nodeOptions: { ca: authority.cert } });
    const call = createClient(WebhookService, transport).listWebhooks(
      {},
      { headers: { "X-Service-Key": "x" } },
    );
    expect((await failure(call))?.code).toBe(Code.ResourceExhausted);
  });

  test("are remembered of so many addresses, and valid keys to so many, as bound memory", async () => {
    await start(0);
    const keys = createWrongKeys(1);
    const address = (n: number) => () => `10.${n >> 16}.${(n >> 8) & 255}.${n & 255}`;
    for (let n = 0; n <= MAX_ADDRESSES; n += 1) await keys.notFound("wrong", address(n));
    expect(await keys.waitBefore("another", address(0))).toBe(0);
    expect(await keys.waitBefore("another", address(1))).toBeGreaterThan(0);
    expect(await keys.waitBefore("another", address(MAX_ADDRESSES))).toBeGreaterThan(0);

    expect(MAX_SEEN_KEYS).toBe(10_000);
    for (let n = 0; n < MAX_SEEN_KEYS; n += 1) keys.found(`key-${n}`);
    // One that is used again outlives those that are not.
    keys.found("key-0");
    keys.found("one too many");
    expect(await keys.waitBefore("key-0", address(1))).toBe(0);
    expect(await keys.waitBefore("key-1", address(1))).toBeGreaterThan(0);
    expect(await keys.waitBefore("key-2", address(1))).toBe(0);
  });

  test("of addresses of one IPv6 network count together, those of another do not", async () => {
    await start(0);
    const keys = createWrongKeys(1);
    await keys.notFound("wrong", () => "2001:db8:1:2::1");
    expect(await keys.waitBefore("another", () => "2001:db8:1:2:ffff::2")).toBeGreaterThan(0);
    expect(await keys.waitBefore("another", () => "2001:db8:1:3::1")).toBe(0);
  });
});

describe("requests of a key", () => {
  const start = async (requestsPerMinute: number) => {
    api = await startTestApi({ limits: { requestsPerMinute } });
  };
  const FIELDS = [
    "RateLimit",
    "RateLimit-Policy",
    "RateLimit-Limit",
    "RateLimit-Remaining",
    "RateLimit-Reset",
  ];

  test("have no limit and no fields that speak of one unless it is set", async () => {
    await start(0);
    const { status, headers } = await api.rest(...LIST);
    expect(status).toBe(200);
    for (const name of FIELDS) expect(headers.has(name)).toBe(false);
  });

  test("are told how many are left in the minute, and are 429 with the time to wait when none is", async () => {
    await start(3);
    for (const left of [2, 1, 0]) {
      const { status, headers } = await api.rest(...LIST);
      expect([status, headers.get("RateLimit-Remaining")]).toEqual([200, String(left)]);
      expect(headers.get("RateLimit-Limit")).toBe("3");
      const reset = seconds(headers.get("RateLimit-Reset"));
      expect(headers.get("RateLimit-Policy")).toBe('"key";q=3;w=60');
      expect(headers.get("RateLimit")).toBe(`"key";r=${left};t=${reset}`);
    }
    const { status, headers, envelope } = await api.rest(...LIST);
    expect([status, headers.get("RateLimit-Remaining")]).toEqual([429, "0"]);
    expect(headers.get("Retry-After")).toBe(headers.get("RateLimit-Reset"));
    expect(envelope).toMatchObject({ Success: false, Data: null });
    expect(envelope.Warnings).toEqual([expect.stringMatching(/used its 3 requests of this minute.*\d+ s$/)]);
  });

  test("count for each key apart", async () => {
    await start(1);
    const [a, b] = [await api.key(), await api.key()];
    expect((await api.rest(...LIST, { key: a.secret })).status).toBe(200);
    expect((await api.rest(...LIST, { key: a.secret })).status).toBe(429);
    expect((await api.rest(...LIST, { key: b.secret })).status).toBe(200);
  });

  test("count alike in every protocol, and over gRPC too many are RESOURCE_EXHAUSTED", async () => {
    await start(3);
    const headers: Headers[] = [];
    for (const transport of [grpc(api), connect(api), grpcWeb(api)]) {
      await createClient(WebhookService, transport).listWebhooks(
        {},
        { onHeader: (got) => headers.push(got) },
      );
    }
    expect(headers.map((got) => got.get("RateLimit-Remaining"))).toEqual(["2", "1", "0"]);
    for (const transport of [grpc(api), connect(api), grpcWeb(api)]) {
      const refused = await failure(createClient(WebhookService, transport).listWebhooks({}));
      expect(refused?.code).toBe(Code.ResourceExhausted);
      seconds(refused?.metadata.get("Retry-After") ?? null);
    }
    expect((await api.rest(...LIST)).status).toBe(429);
  });

  test("count whatever becomes of them: refused ones and those that cannot be read too", async () => {
    await start(3);
    const reader = await api.key({ permissions: ONLY.read });
    const post = (raw?: { body: string; type: string }) =>
      api.rest("POST", "/api/webhook", { key: reader.secret, ...(raw ? { raw } : { json: {} }) });
    const unreadable = await post({ body: "{", type: "application/json" });
    expect([unreadable.status, unreadable.headers.get("RateLimit-Remaining")]).toEqual([403, "2"]);
    const writer = await api.rest("POST", "/api/webhook", { json: { process: 99 } });
    expect([writer.status, writer.headers.get("RateLimit-Remaining")]).toEqual([400, "2"]);
    const refused = await createClient(ApiKeyService, grpc(api, reader.secret))
      .listApiKeys({})
      .catch((error: unknown) => error);
    expect(refused).toMatchObject({ code: Code.PermissionDenied });
  });

  test("are one for a whole batch or stream of events", async () => {
    await start(2);
    const events: Client<typeof EventService> = createClient(EventService, grpc(api));
    const batch = Array.from({ length: 20 }, (_, n) => ({
      idempotencyKey: `batch-${n}`,
      userId: "tenant-1",
      data: { case: "stockLevelChanged" as const, value: { productId: BigInt(n + 1), sku: "L" } },
    }));
    const { results } = await events.publishEventBatch({ events: batch });
    expect(results).toHaveLength(20);
    expect((await api.rest(...LIST)).status).toBe(200);
    expect((await api.rest(...LIST)).status).toBe(429);
  });

  test("say nothing of health: it wants no key and has no limit", async () => {
    await start(1);
    for (let n = 0; n < 5; n += 1) expect((await fetch(`${api.url}/healthz`)).status).toBe(200);
  });
});
