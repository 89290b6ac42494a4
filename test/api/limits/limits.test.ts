import { once } from "node:events";
import * as http2 from "node:http2";
import { Code, type ConnectError, createClient, type Transport } from "@connectrpc/connect";
import { afterAll, describe, expect, onTestFinished, test } from "vitest";
import { ApiKeyService } from "../../../gen/webhook/v1/api_key_pb.ts";
import { EventService } from "../../../gen/webhook/v1/event_pb.ts";
import { WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import { readConfig } from "../../../src/config/config.ts";
import { RATE_LIMIT_FIELDS } from "../../../src/keys/gate/request-limits.ts";
import { createWrongKeys, MAX_ADDRESSES, MAX_SEEN_KEYS } from "../../../src/keys/gate/wrong-keys.ts";
import { connect, grpc, grpcWeb } from "../../support/clients.ts";
import { exampleOf } from "../../support/described-answers.ts";
import { orderEvent, refused } from "../../support/grpc-calls.ts";
import { enveloped } from "../../support/hostile-messages.ts";
import { ONLY, startTestApi, type TestApi, useApi } from "../../support/test-api.ts";
import { callHttp } from "../../support/wire.ts";

/** Calls come from the address that they say, so that each test has its own, and one key per test has its own requests. */
const { trustedProxies } = readConfig({ TRUST_PROXY: "127.0.0.0/8,::1/128" }).limits;
const limits = { wrongKeysPerMinute: 2, requestsPerMinute: 3 };
const api = await startTestApi({ limits: { ...limits, trustedProxies } });
afterAll(() => api.stop());

const LIST = ["GET", "/api/webhook/list"] as const;
/** A time to wait, as a header tells it. */
const SECONDS = expect.stringMatching(/^([1-9]|[1-5]\d|60)$/);
const TRANSPORTS = [grpc, connect, grpcWeb];

let addresses = 0;
/** The header of a caller whom no other test has been. */
const freshCaller = () => ({ "X-Forwarded-For": `198.51.100.${++addresses}` });
const freshKey = async (on: TestApi = api) => (await on.key()).secret;
const listBy = (key: string, headers = {}, on = api) => on.rest(...LIST, { key, headers });
const wrong = (headers = {}, on = api) => listBy("wrong", headers, on);
const listVia = (transport: Transport, headers = {}): Promise<ConnectError> =>
  refused(createClient(WebhookService, transport).listWebhooks({}, { headers }));

/** Uses an address up. */
async function throttled() {
  const caller = freshCaller();
  for (let n = 0; n < limits.wrongKeysPerMinute; n += 1) expect((await wrong(caller)).status).toBe(401);
  return caller;
}

/** Statements about API keys that the service makes while `act` runs. */
async function lookUpsOf(act: () => Promise<unknown>): Promise<number> {
  let lookUps = 0;
  const note = ({ sql }: { sql: string }) => {
    if (sql.includes("secret_sha256")) lookUps += 1;
  };
  api.context.db.on("query", note);
  await act().finally(() => api.context.db.removeListener("query", note));
  return lookUps;
}

const wordsOf = (text: string | undefined) => text?.replaceAll(/\d+/g, "#");

describe("wrong keys", () => {
  test("are 401 so often in a minute and then 429, with the time to wait, in the envelope, as the description says", async () => {
    const { status, headers, envelope } = await wrong(await throttled());
    const wait = headers.get("Retry-After");
    expect([status, wait]).toEqual([429, SECONDS]);
    expect(envelope).toEqual({
      Success: false,
      Data: null,
      Warnings: [expect.stringMatching(`^too many wrong API keys.*not checked.*retry in ${wait} s$`)],
    });
    expect(wordsOf(envelope.Warnings[0])).toBe(wordsOf(exampleOf("TooManyRequests", "wrongKeys")));
  });

  test("are refused without a look-up once their address is throttled, in every protocol and on the sign-in page", async () => {
    const caller = freshCaller();
    expect(await lookUpsOf(() => wrong(caller))).toBeGreaterThan(0);
    await wrong(caller);
    const guesses = async () => {
      expect((await wrong(caller)).status).toBe(429);
      const unread = { key: "guess", raw: { body: "{" }, headers: caller };
      expect((await api.rest("POST", "/api/webhook", unread)).status).toBe(429);
      for (const transport of TRANSPORTS) {
        const error = await listVia(transport(api, "guess"), caller);
        expect([error.code, error.metadata.get("Retry-After")]).toEqual([Code.ResourceExhausted, SECONDS]);
      }
      const page = { "X-Settings-Page": "1", "Sec-Fetch-Site": "same-origin" };
      const signIn = { key: null, headers: { ...caller, ...page }, body: '{"apiKey":"guess"}' };
      expect((await callHttp(api, "SessionService/SignIn", signIn)).status).toBe(429);
    };
    expect(await lookUpsOf(guesses)).toBe(0);
  });

  test("hold up no key of the same address that this process has seen valid, until it is revoked", async () => {
    const { id, secret } = await api.key();
    expect((await listBy(secret)).status).toBe(200);
    const caller = await throttled();
    expect((await wrong(caller)).status).toBe(429);
    const client = createClient(WebhookService, grpc(api, secret));
    await expect(client.listWebhooks({}, { headers: caller })).resolves.toBeDefined();
    const webhooks = { case: "deleteWebhooks" as const, value: {} };
    await api.client(ApiKeyService, await freshKey()).revokeApiKey({ apiKeyId: id, webhooks });
    // It is looked up, since it was seen valid, and forgotten then.
    expect(await lookUpsOf(() => listBy(secret, caller))).toBeGreaterThan(0);
    expect(await lookUpsOf(async () => expect((await listBy(secret, caller)).status).toBe(429))).toBe(0);
  });

  test("are counted where a key was sent: a missing one is only told so", async () => {
    const headers = freshCaller();
    for (let n = 0; n < 5; n += 1) expect((await api.rest(...LIST, { key: null, headers })).status).toBe(401);
    expect((await wrong(headers)).status).toBe(401);
  });

  test.each([
    // What the caller itself has put before the proxy's entry counts for nothing.
    ["203.0.113.2", "198.51.100.7, 203.0.113.2", "203.0.113.2, 127.0.0.1"],
    ["[2001:db8:1::1]:50123", "[2001:db8:1::2]", "2001:db8:1::3"],
  ])("are counted by what a trusted proxy says: %s, %s and %s are one", async (first, second, third) => {
    const from = (address: string) => wrong({ "X-Forwarded-For": address });
    expect([(await from(first)).status, (await from(second)).status]).toEqual([401, 401]);
    expect((await from(third)).status).toBe(429);
    const error = await listVia(grpc(api, "wrong"), { "X-Forwarded-For": first });
    expect(error.code).toBe(Code.ResourceExhausted);
  });

  test("are counted by the proxy's own address without trust, whatever a header of the caller's says", async () => {
    const own = await startTestApi({ limits: { wrongKeysPerMinute: 1 } });
    onTestFinished(() => own.stop());
    const codes = [];
    for (const address of ["198.51.100.1", "198.51.100.2"]) {
      const headers = { "X-Caller-Address": address, "X-Forwarded-For": address };
      codes.push((await listVia(grpc(own, "wrong"), headers)).code, (await wrong(headers, own)).status);
    }
    expect(codes).toEqual([Code.Unauthenticated, 429, Code.ResourceExhausted, 429]);
  });

  test("are remembered of so many addresses, and valid keys to so many, as bound memory", async () => {
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

  test("of addresses of one IPv6 network count together, addresses of another network do not", async () => {
    const keys = createWrongKeys(1);
    await keys.notFound("wrong", () => "2001:db8:1:2::1");
    expect(await keys.waitBefore("another", () => "2001:db8:1:2:ffff::2")).toBeGreaterThan(0);
    expect(await keys.waitBefore("another", () => "2001:db8:1:3::1")).toBe(0);
  });
});

describe("requests of a key", () => {
  test("have no limit and no fields that speak of one unless it is set", async () => {
    const { status, headers } = await (await useApi()).rest(...LIST);
    expect([status, RATE_LIMIT_FIELDS.filter((name) => headers.has(name))]).toEqual([200, []]);
  });

  test("get headers with the calls left in the minute, and 429 with the time to wait when none are left, as the description says", async () => {
    const key = await freshKey();
    for (const left of ["2", "1", "0"]) {
      const { status, headers } = await listBy(key);
      const reset = headers.get("RateLimit-Reset");
      expect([status, ...RATE_LIMIT_FIELDS.map((name) => headers.get(name))]).toEqual([
        200,
        '"key";q=3;w=60',
        `"key";r=${left};t=${reset}`,
        "3",
        left,
        SECONDS,
      ]);
    }
    const { status, headers, envelope } = await listBy(key);
    expect([status, headers.get("RateLimit-Remaining")]).toEqual([429, "0"]);
    expect(headers.get("Retry-After")).toBe(headers.get("RateLimit-Reset"));
    const Warnings = [expect.stringMatching(/used its 3 requests of this minute.*\d+ s$/)];
    expect(envelope).toEqual({ Success: false, Data: null, Warnings });
    expect(wordsOf(envelope.Warnings[0])).toBe(wordsOf(exampleOf("TooManyRequests", "requests")));
    // Each key has its own.
    expect((await listBy(await freshKey())).status).toBe(200);
  });

  test("count alike in every protocol, and over gRPC too many are RESOURCE_EXHAUSTED", async () => {
    const key = await freshKey();
    const left: (string | null)[] = [];
    const onHeader = (headers: Headers) => void left.push(headers.get("RateLimit-Remaining"));
    for (const transport of TRANSPORTS)
      await createClient(WebhookService, transport(api, key)).listWebhooks({}, { onHeader });
    expect(left).toEqual(["2", "1", "0"]);
    for (const transport of TRANSPORTS) {
      const error = await listVia(transport(api, key));
      expect([error.code, error.metadata.get("Retry-After")]).toEqual([Code.ResourceExhausted, SECONDS]);
    }
    expect((await listBy(key)).status).toBe(429);
  });

  test("count whatever becomes of them: refused ones and those that cannot be read too", async () => {
    const reader = (await api.key({ permissions: ONLY.read })).secret;
    const raw = { body: "{", type: "application/json" };
    const unreadable = await api.rest("POST", "/api/webhook", { key: reader, raw });
    expect([unreadable.status, unreadable.headers.get("RateLimit-Remaining")]).toEqual([403, "2"]);
    const forbidden = await refused(api.client(ApiKeyService, reader).listApiKeys({}));
    expect([forbidden.code, forbidden.metadata.get("RateLimit-Remaining")]).toEqual([
      Code.PermissionDenied,
      "1",
    ]);
    const invalid = await api.rest("POST", "/api/webhook", { key: await freshKey(), json: { process: 99 } });
    expect([invalid.status, invalid.headers.get("RateLimit-Remaining")]).toEqual([400, "2"]);
  });

  test("are one for a whole batch of events", async () => {
    const key = await freshKey();
    const events = Array.from({ length: 20 }, orderEvent);
    expect((await api.client(EventService, key).publishEventBatch({ events })).results).toHaveLength(20);
    expect((await listBy(key)).headers.get("RateLimit-Remaining")).toBe("1");
  });

  test("say nothing of health: it wants no key and has no limit", async () => {
    for (let n = 0; n < 5; n += 1) expect((await fetch(`${api.url}/healthz`)).status).toBe(200);
  });
});

describe("incomplete messages", () => {
  /** Starts calls whose messages never end. Answers the status of the first that is refused. */
  async function firstRefused(
    on: TestApi,
    calls: number,
    bytes: number,
    headersOf: (n: number) => http2.OutgoingHttpHeaders,
  ): Promise<unknown> {
    // The head of a message that is longer than what is sent of it.
    const part = enveloped(Buffer.alloc(bytes)).subarray(0, bytes);
    const sessions = Array.from({ length: Math.ceil(calls / 200) }, () => http2.connect(on.grpcUrl));
    onTestFinished(() => {
      for (const session of sessions) session.destroy();
    });
    const streams = Array.from({ length: calls }, (_, n) => {
      const headers = { ":method": "POST", "content-type": "application/grpc", ...headersOf(n) };
      const session = sessions[Math.floor(n / 200)] as http2.ClientHttp2Session;
      const stream = session.request(headers).on("error", () => {});
      stream.write(part);
      return once(stream.resume(), "trailers");
    });
    return (await Promise.race(streams))[0]["grpc-status"];
  }

  test("of callers without a key keep out no message of a key", async () => {
    const status = await firstRefused(api, 2_200, 8_192, (n) => ({
      ":path": "/grpc.health.v1.Health/Check",
      "x-forwarded-for": `192.0.2.${Math.floor(n / 200)}`,
    }));
    expect(status).toBe("8");
    expect((await listBy(await freshKey())).status).toBe(200);
  });

  test("of one key keep out no message of another", async () => {
    const shared = await useApi();
    const key = await freshKey(shared);
    const headers = { ":path": "/webhook.v1.WebhookService/ListWebhooks", "x-service-key": key };
    expect(await firstRefused(shared, 300, 65_536, () => headers)).toBe("8");
    expect((await shared.client(WebhookService).listWebhooks({})).webhooks).toEqual([]);
  });
});
