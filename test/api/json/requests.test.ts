import { gzipSync } from "node:zlib";
import { expect, test } from "vitest";
import { aWebhook } from "../../support/builders.ts";
import { enveloped } from "../../support/hostile-messages.ts";
import { useApi } from "../../support/test-api.ts";
import { callByGet, callGrpc, callHttp } from "../../support/wire.ts";

/** Beyond 2^53 and odd: a double is the next even number. */
const ODD = "9007199254740993";
const ROUNDED = "9007199254740992";

const api = await useApi();
const { db } = api.context;
for (const id of [ROUNDED, ODD]) await aWebhook().with({ id }).in(db);

/** What is answered, trailers included. */
type Call = (method: string, json: string) => Promise<string>;

const post = async (method: string, body: string | Uint8Array<ArrayBuffer>, type = "json", headers = {}) =>
  (await callHttp(api, method, { body, type: `application/${type}`, headers })).text;

const grpc: Call = async (method, json) => {
  const call = { type: "application/grpc+json", body: enveloped(Buffer.from(json)) };
  const { body, status, message } = await callGrpc(api, method, call);
  return `${body} ${status} ${message}`;
};

const UNARY: [string, Call][] = [
  ["Connect", post],
  [
    "Connect, compressed",
    (method, json) => post(method, new Uint8Array(gzipSync(json)), "json", { "Content-Encoding": "gzip" }),
  ],
  ["gRPC", grpc],
  ["gRPC-Web", (method, json) => post(method, enveloped(Buffer.from(json)), "grpc-web+json")],
];
const GET: [string, Call][] = [
  ["Connect GET", async (method, message) => (await callByGet(api, method, { message })).text],
  [
    "Connect GET, base64",
    async (method, json) => {
      const message = Buffer.from(json).toString("base64url");
      return (await callByGet(api, method, { base64: "1", message })).text;
    },
  ],
];

const GET_WEBHOOK = "WebhookService/GetWebhook";
const DELIVERIES = "DeliveryService/ListDeliveries";
const PUBLISH = "EventService/PublishEvent";
const CREATE = "WebhookService/CreateWebhook";
const SETTINGS = "WebhookService/SetWebhookRequestSettings";
const RATE = "WebhookService/SetWebhookRateLimit";

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
  const history = await post("StatsService/ListWebhookHistory", `{"webhookIds": [1, ${ODD}]}`);
  expect(JSON.parse(history).webhooks).toMatchObject([{ webhookId: ODD }]);
});

test("the integers of a published payload keep every digit, at any depth, also of a stream", async () => {
  const event = (key: string) =>
    `{"idempotencyKey": "${key}", "userId": "[{${ROUNDED}\\"", "orderDispatched": {"orderId": ${ODD},
      "orderNumber": "a, 9007199254740993", "dispatchedAt": "2026-02-28T23:59:59Z",
      "lines": [{"productId": -9223372036854775808, "sku": "s", "quantity": 1}, {"productId": ${ODD}, "sku": "t"}]}}`;
  const streamed = (key: string) => enveloped(Buffer.from(`{"events": [${event(key)}]}`));
  const published = [
    await post(PUBLISH, event("unary")),
    await post("EventService/PublishEventBatch", `{"events": [${event("batch-1")}, ${event("batch-2")}]}`),
    await post("EventService/PublishEvents", Buffer.concat([streamed("1"), streamed("2")]), "connect+json"),
    await grpc("EventService/PublishEvents", `{"events": [${event("grpc")}]}`),
  ];
  for (const answer of published) expect(answer).toContain("eventId");
  expect((await db("events").pluck("payload")).map(String)).toEqual(
    Array(6).fill(
      `{"OrderId":${ODD},"OrderNumber":"a, 9007199254740993","DispatchedAt":"2026-02-28T23:59:59","Carrier":null,"TrackingNumber":null,"Lines":[{"ProductId":-9223372036854775808,"Sku":"s","Quantity":1},{"ProductId":${ODD},"Sku":"t","Quantity":0}]}`,
    ),
  );
});

test.each(["9223372036854775808", `${ODD}.0`, "9.007199254740993e15", "1".repeat(8_000)])(
  "an integer that cannot be kept exactly is refused: %s",
  async (id) => {
    const says = "GetWebhookRequest.webhookId must be a whole number of 64 bits";
    for (const [, call] of UNARY) expect(await call(GET_WEBHOOK, `{"webhookId": ${id}}`)).toContain(says);
  },
);

test.each([
  ["a number for a text", SETTINGS, `{"settings": {"bearer": {"token": ${ODD}}}}`, "token must be a string"],
  ["a number for an enumeration", CREATE, `{"process": ${ODD}}`, "process must be one of: WEBHOOK_PROC"],
  ["a number of 32 bits", RATE, `{"rateLimit": ${ODD}}`, "rateLimit must be a whole number of 32 bits"],
  ["an unknown field", GET_WEBHOOK, `{"id": ${ODD}}`, 'has no field \\"id\\"'],
  ["a field sent twice", GET_WEBHOOK, `{"webhookId": 1, "webhookId": ${ODD}}`, "has a field twice"],
  [
    "JSON that is cut off",
    PUBLISH,
    `{"time": "2026-02-30T00:00:00Z", "userId": ${ODD}`,
    "not valid JSON: Expected",
  ],
])("other errors stay as they are beside a large integer: %s", async (_name, method, json, says) => {
  expect(await post(method, json)).toContain(says);
});

test.each([
  ["2026-02-30T00:00:00Z", "but 2026-02 has 28 days; send a day from 01 to 28"],
  ["2026-02-29T12:00:00.5+01:00", "but 2026-02 has 28 days; send a day from 01 to 28"],
  ["2026-04-31T00:00:00Z", "but 2026-04 has 30 days; send a day from 01 to 30"],
  ["2026-04-30T24:00:00Z", "but hours are 00 to 23; send midnight as 00:00:00 of the next day"],
])("a time that does not exist is refused, and the error says why: %s", async (time, says) => {
  const told = `is ${time}, ${says}`;
  for (const [, call] of [...UNARY, ...GET])
    expect(await call(DELIVERIES, `{"from": "${time}"}`)).toContain(`ListDeliveriesRequest.from ${told}`);
  const events = `{"events": [{"orderDispatched": {"dispatchedAt": "${time.replace("-", "\\u002D")}"}}]}`;
  const streamed = await post("EventService/PublishEvents", enveloped(Buffer.from(events)), "connect+json");
  for (const answer of [streamed, await grpc("EventService/PublishEvents", events)])
    expect(answer).toContain(`OrderDispatched.dispatchedAt ${told}`);
  const { code, details } = JSON.parse(await post(DELIVERIES, `{"from": "${time}"}`));
  expect([code, details[0].debug.reason]).toEqual(["invalid_argument", "REQUEST_INVALID"]);
});

test.each(["2028-02-29T00:00:00Z", "2026-01-31T23:59:59.999999999-12:00", "2000-02-29T00:00:00Z"])(
  "the last day of a month is taken: %s",
  async (time) => {
    expect(JSON.parse(await post(DELIVERIES, `{"from": "${time}"}`))).not.toHaveProperty("code");
  },
);

test.each(["2026-02-30T24:61:00Z", "2026-02-30", "2026-02-30T00:00:00Zhunter2"])(
  "text that is no time has the error of all such text: %s",
  async (time) => {
    expect(await post(DELIVERIES, `{"from": "${time}"}`)).toContain(
      "ListDeliveriesRequest.from must be a time with a time zone, of the years 0001 to 9999, such as 2026-11-21T09:30:00Z",
    );
  },
);

test.each([
  ["a day alone", DELIVERIES, '{"to" : "2026-01-01"}', "ListDeliveriesRequest.to must be a time"],
  ["a month 13", DELIVERIES, '{"from":"2026-13-01T00:00:00Z"}', "ListDeliveriesRequest.from must be a time"],
  ["the year 0", DELIVERIES, '{"from":"0000-01-01T00:00:00Z"}', "ListDeliveriesRequest.from must be a time"],
  ["a number", DELIVERIES, '{"from": 5}', "ListDeliveriesRequest.from must be a time"],
  ["an object", DELIVERIES, '{"from": {"seconds": 5}}', "ListDeliveriesRequest.from must be a time"],
  [
    "a time within a payload",
    PUBLISH,
    '{"orderDispatched": {"dispatchedAt": "soon"}}',
    "OrderDispatched.dispatchedAt must be a time",
  ],
  [
    "a period",
    "ApiKeyService/RotateApiKey",
    '{"gracePeriod": "1 day"}',
    "RotateApiKeyRequest.gracePeriod must be a number of seconds, such as 86400s",
  ],
])(
  "a value that is no time or period is refused by the name of its field: %s",
  async (_what, method, json, says) => {
    expect(await post(method, json)).toContain(says);
  },
);

test("errors have names of fields as in JSON for callers that speak it, and as in the proto file for others", async () => {
  const broken = '{"idempotencyKey": "a", "orderDispatched": {}}';
  const says = ["userId is required", "orderDispatched.orderNumber is required"];
  const batch = `{"events": [${broken}]}`;
  for (const answer of [
    await post(PUBLISH, broken),
    await post("EventService/PublishEventBatch", batch),
    await grpc(PUBLISH, broken),
  ])
    for (const each of says) expect(answer).toContain(each);
  const { message, details } = JSON.parse(await post(DELIVERIES, '{"pageToken": "x"}'));
  expect(message).toBe("pageToken must be the nextPageToken or previousPageToken of a page");
  expect(details[1].debug.fieldViolations[0].field).toBe("page_token");
  await expect(api.deliveries.listDeliveries({ pageToken: "x" })).rejects.toThrow(
    "page_token must be the next_page_token",
  );
});

test("texts that look like times and integers stay as they are", async () => {
  const name = `2026-02-30T00:00:00Z, ${ODD}`;
  const made = await post("ApiKeyService/CreateApiKey", JSON.stringify({ permissions: [1], name }));
  expect(JSON.parse(made).apiKey.name).toBe(name);
});

test("JSON may use the field names of the proto file, and numbers for enums", async () => {
  const body = JSON.stringify({ process: 1, url: "https://receiver.example/proto-names" });
  const { id } = (await callHttp(api, CREATE, { body })).json.webhook;
  const deleted = await post("WebhookService/DeleteWebhook", JSON.stringify({ webhook_id: id }));
  expect(JSON.parse(deleted).webhook.id).toBe(id);
});
