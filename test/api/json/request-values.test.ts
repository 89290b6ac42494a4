import { once } from "node:events";
import * as http2 from "node:http2";
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { enveloped } from "../../support/hostile-messages.ts";
import { startTestApi, type TestApi } from "../../support/test-api.ts";

/** Beyond 2^53 and odd: a double is the next even number. */
const ODD = "9007199254740993";
const ROUNDED = "9007199254740992";

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi();
  await api.context.db.raw(`alter table webhooks alter column id restart with ${ROUNDED}`);
  await api.register();
  await api.register();
  expect(await api.context.db("webhooks").pluck("id").orderBy("id")).toEqual([BigInt(ROUNDED), BigInt(ODD)]);
});
afterAll(() => api.stop());

type Call = (method: string, json: string) => Promise<string>;

/** Posts a body; answers the body with everything in it, such as trailers of gRPC-Web. */
async function post(method: string, type: string, body: string | Uint8Array<ArrayBuffer>, headers = {}) {
  const answer = await fetch(`${api.url}/webhook.v1.${method}`, {
    method: "POST",
    headers: { "X-Service-Key": api.adminKey, "Content-Type": `application/${type}`, ...headers },
    body,
  });
  return answer.text();
}

async function get(method: string, query: Record<string, string>): Promise<string> {
  const params = new URLSearchParams({ connect: "v1", encoding: "json", ...query });
  const headers = { "X-Service-Key": api.adminKey };
  return (await fetch(`${api.url}/webhook.v1.${method}?${params}`, { headers })).text();
}

/** Calls by gRPC; answers the body and the message of the trailers. */
async function grpc(method: string, json: string): Promise<string> {
  const session = http2.connect(api.grpcUrl);
  onTestFinished(() => session.destroy());
  const stream = session.request({
    ":method": "POST",
    ":path": `/webhook.v1.${method}`,
    "content-type": "application/grpc+json",
    te: "trailers",
    "x-service-key": api.adminKey,
  });
  const parts: Buffer[] = [];
  stream.on("data", (part: Buffer) => parts.push(part));
  stream.end(enveloped(Buffer.from(json)));
  const [trailers] = await once(stream, "trailers");
  return `${Buffer.concat(parts)} ${trailers["grpc-status"]} ${trailers["grpc-message"]}`;
}

const UNARY: [string, Call][] = [
  ["Connect", (method, json) => post(method, "json", json)],
  [
    "Connect, compressed",
    (method, json) => post(method, "json", new Uint8Array(gzipSync(json)), { "Content-Encoding": "gzip" }),
  ],
  ["gRPC", grpc],
  ["gRPC-Web", (method, json) => post(method, "grpc-web+json", enveloped(Buffer.from(json)))],
];
const GET: [string, Call][] = [
  ["Connect GET", (method, message) => get(method, { message })],
  [
    "Connect GET, base64",
    (method, json) => get(method, { base64: "1", message: Buffer.from(json).toString("base64url") }),
  ],
];

const GET_WEBHOOK = "WebhookService/GetWebhook";
const DELIVERIES = "DeliveryService/ListDeliveries";
const PUBLISH = "EventService/PublishEvent";

test.each([...UNARY, ...GET])(
  "an integer beyond 2^53 without quotes keeps every digit: %s",
  async (_name, call) => {
    for (const id of [ODD, ROUNDED]) {
      expect(await call(GET_WEBHOOK, `{"webhookId": ${id}}`)).toContain(`"id":"${id}"`);
      expect(await call(GET_WEBHOOK, `{"\\u0077ebhook_id":${id}\n}`)).toContain(`"id":"${id}"`);
    }
  },
);

test("the items of a list keep every digit", async () => {
  const history = await post("StatsService/ListWebhookHistory", "json", `{"webhookIds": [1, ${ODD}]}`);
  expect(JSON.parse(history).webhooks).toMatchObject([{ webhookId: ODD }]);
});

test("the integers of a published payload keep every digit, at any depth, also of a stream", async () => {
  const event = (key: string) =>
    `{"idempotencyKey": "${key}", "userId": "[{${ROUNDED}\\"", "orderDispatched": {"orderId": ${ODD},
      "orderNumber": "a, 9007199254740993", "dispatchedAt": "2026-02-28T23:59:59Z",
      "lines": [{"productId": -9223372036854775808, "sku": "s", "quantity": 1}, {"productId": ${ODD}, "sku": "t"}]}}`;
  const published = [
    await post(PUBLISH, "json", event("unary")),
    await post(
      "EventService/PublishEventBatch",
      "json",
      `{"events": [${event("batch-1")}, ${event("batch-2")}]}`,
    ),
    await post(
      "EventService/PublishEvents",
      "connect+json",
      Buffer.concat(["1", "2"].map((n) => enveloped(Buffer.from(`{"events": [${event(`stream-${n}`)}]}`)))),
    ),
    await grpc("EventService/PublishEvents", `{"events": [${event("grpc")}]}`),
  ];
  for (const answer of published) expect(answer).toContain("eventId");
  const payloads: string[] = await api.context.db("events").pluck("payload");
  expect(payloads.map(String)).toEqual(
    Array(6).fill(
      `{"OrderId":${ODD},"OrderNumber":"a, 9007199254740993","DispatchedAt":"2026-02-28T23:59:59","Carrier":null,"TrackingNumber":null,"Lines":[{"ProductId":-9223372036854775808,"Sku":"s","Quantity":1},{"ProductId":${ODD},"Sku":"t","Quantity":0}]}`,
    ),
  );
});

test.each([
  ["one too large for 64 bits", "9223372036854775808"],
  ["one with a fraction", `${ODD}.0`],
  ["one with an exponent", "9.007199254740993e15"],
  ["one of 8,000 digits", "1".repeat(8_000)],
])("an integer that cannot be kept exactly is refused: %s", async (_name, id) => {
  const says = "GetWebhookRequest.webhook_id must be a whole number of 64 bits";
  for (const [, call] of UNARY) expect(await call(GET_WEBHOOK, `{"webhookId": ${id}}`)).toContain(says);
});

test.each([
  [
    "a number for a text",
    "WebhookService/SetWebhookRequestSettings",
    `{"settings": {"bearer": {"token": ${ODD}}}}`,
    "BearerAuthentication.token must be a string",
  ],
  [
    "a number for an enumeration",
    "WebhookService/CreateWebhook",
    `{"process": ${ODD}}`,
    "CreateWebhookRequest.process must be one of: WEBHOOK_PROCESS_ORDER_DISPATCHED",
  ],
  [
    "a number of 32 bits",
    "WebhookService/SetWebhookRateLimit",
    `{"webhookId": 1, "rateLimit": ${ODD}}`,
    "SetWebhookRateLimitRequest.rate_limit must be a whole number of 32 bits",
  ],
  ["an unknown field", GET_WEBHOOK, `{"id": ${ODD}}`, 'has no field \\"id\\"'],
  ["a field sent twice", GET_WEBHOOK, `{"webhookId": 1, "webhookId": ${ODD}}`, "has a field twice"],
  [
    "JSON that is cut off",
    PUBLISH,
    `{"time": "2026-02-30T00:00:00Z", "orderDispatched": {"orderId": ${ODD}`,
    "the message is not valid JSON: Expected",
  ],
])("other errors stay as they are beside a large integer: %s", async (_name, method, json, says) => {
  expect(await post(method, "json", json)).toContain(says);
});

test.each([
  ["2026-02-30T00:00:00Z", "but 2026-02 has 28 days; send a day from 01 to 28"],
  ["2026-02-29T12:00:00.5+01:00", "but 2026-02 has 28 days; send a day from 01 to 28"],
  ["2028-02-30T00:00:00Z", "but 2028-02 has 29 days; send a day from 01 to 29"],
  ["2026-04-31T00:00:00Z", "but 2026-04 has 30 days; send a day from 01 to 30"],
  ["2026-04-30T24:00:00Z", "but hours are 00 to 23; send midnight as 00:00:00 of the next day"],
])("a time that does not exist is refused, and the error says why: %s", async (time, says) => {
  const told = `is ${time}, ${says}`;
  for (const [, call] of [...UNARY, ...GET]) {
    const answer = await call(DELIVERIES, `{"from": "${time}"}`);
    expect(answer).toContain(`ListDeliveriesRequest.from ${told}`);
  }
  const events = `{"events": [{"orderDispatched": {"dispatchedAt": "${time.replace("-", "\\u002D")}"}}]}`;
  const streamed = await post("EventService/PublishEvents", "connect+json", enveloped(Buffer.from(events)));
  for (const answer of [streamed, await grpc("EventService/PublishEvents", events)])
    expect(answer).toContain(`OrderDispatched.dispatched_at ${told}`);
  const { code, details } = JSON.parse(await post(DELIVERIES, "json", `{"from": "${time}"}`));
  expect([code, details[0].debug.reason]).toEqual(["invalid_argument", "REQUEST_INVALID"]);
});

test.each(["2028-02-29T00:00:00Z", "2026-01-31T23:59:59.999999999-12:00", "2000-02-29T00:00:00Z"])(
  "the last day of a month is taken: %s",
  async (time) => {
    expect(JSON.parse(await post(DELIVERIES, "json", `{"from": "${time}"}`))).not.toHaveProperty("code");
  },
);

test.each(["2026-02-30T24:61:00Z", "2026-02-30", "2026-02-30T00:00:00Zhunter2"])(
  "text that is no time has the error of all such text: %s",
  async (time) => {
    expect(await post(DELIVERIES, "json", `{"from": "${time}"}`)).toContain(
      "Timestamp must be a time of the years 0001 to 9999, such as 2026-11-21T09:30:00Z",
    );
  },
);

test("texts that look like times and integers stay as they are", async () => {
  const name = `2026-02-30T00:00:00Z, ${ODD}`;
  const key = JSON.stringify({ name, permissions: ["PERMISSION_READ_ADMINISTRATIVE_DATA"] });
  expect(JSON.parse(await post("ApiKeyService/CreateApiKey", "json", key)).apiKey.name).toBe(name);
});
