import { Code, createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, expect, test } from "vitest";
import { WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import { SERVICES } from "../../../src/api/routes.ts";
import { connect } from "../../support/clients.ts";
import { failure } from "../../support/failure.ts";
import { parseRaw, sendRaw } from "../../support/raw-request.ts";
import { startTestApi, type TestApi } from "../../support/test-api.ts";

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi();
});
afterAll(() => api.stop());

const BODY = '{"process": 1, "url": "https://receiver.example/mistakes"}';
const SEND_JSON = "send JSON with Content-Type: application/json";

test.each([
  ["text/plain;charset=UTF-8", `the Content-Type "text/plain;charset=UTF-8" is not supported; ${SEND_JSON}`],
  ["text/json", `the Content-Type "text/json" is not supported; ${SEND_JSON}`],
  [
    "application/x-www-form-urlencoded",
    "the body looks like JSON, but its Content-Type is application/x-www-form-urlencoded: send it with Content-Type: application/json",
  ],
])("a JSON body sent as %s is told the content type of JSON", async (type, says) => {
  const { status, envelope } = await api.rest("POST", "/api/webhook", { raw: { body: BODY, type } });
  expect([status, envelope.Success]).toEqual([400, false]);
  expect(envelope.Warnings[0]).toContain(says);
});

test("a JSON body sent without a content type is told the content type of JSON, over REST and Connect", async () => {
  const head = `Host: a\r\nX-Service-Key: ${api.adminKey}\r\nConnection: close\r\nContent-Length: ${BODY.length}`;
  const send = async (path: string) =>
    parseRaw(await sendRaw(api.httpPort, `POST ${path} HTTP/1.1\r\n${head}\r\n\r\n${BODY}`));
  const rest = await send("/api/webhook");
  expect(rest.status).toBe(400);
  expect(JSON.parse(rest.body).Warnings[0]).toContain(`the body has no Content-Type; ${SEND_JSON}`);
  const call = await send("/webhook.v1.WebhookService/CreateWebhook");
  expect(call.status).toBe(415);
  expect(call.body).toContain(
    "CreateWebhook cannot read a body without a Content-Type: send JSON by POST with Content-Type: application/json",
  );
});

test("a form that holds the parameters is taken, whatever else it holds", async () => {
  const form = { process: "1", url: "https://receiver.example/form", '{"a"': "1" };
  expect((await api.rest("POST", "/api/webhook", { form })).status).toBe(200);
});

const SECRET = "a-key-that-nobody-is-to-read";
const NOT_THERE =
  "the header X-Service-Key is missing: send your API key in it, not in Authorization, which this service does not read";

test.each([`Bearer ${SECRET}`, `Basic ${Buffer.from(`key:${SECRET}`).toString("base64")}`, SECRET])(
  "§5.6: a key in Authorization is told its header and not repeated: %s",
  async (authorization) => {
    const headers = { Authorization: authorization };
    const { status, envelope } = await api.rest("GET", "/api/webhook/list", { key: null, headers });
    expect([status, envelope]).toEqual([401, { Success: false, Data: null, Warnings: [NOT_THERE] }]);
    const call = await fetch(`${api.url}/webhook.v1.WebhookService/ListWebhooks`, {
      method: "POST",
      headers: { ...headers, "Content-Type": "application/json" },
      body: "{}",
    });
    const text = await call.text();
    expect([call.status, JSON.parse(text)]).toMatchObject([
      401,
      { code: "unauthenticated", message: NOT_THERE },
    ]);
    expect(text).not.toContain(SECRET);
  },
);

test("§5.6: the name of a scheme before the key is told to be left out, and the key is not repeated", async () => {
  const { status, envelope } = await api.rest("GET", "/api/webhook/list", { key: `Bearer ${SECRET}` });
  expect([status, envelope.Warnings]).toEqual([
    401,
    ["X-Service-Key contains a scheme before the key; send only the key"],
  ]);
});

test("a request with a key is served, whatever Authorization holds", async () => {
  const headers = { Authorization: `Bearer ${SECRET}` };
  expect((await api.rest("GET", "/api/webhook/list", { headers })).status).toBe(200);
});

test.each([
  ["GET", "/api/webhooks", "GET /api/webhook/list"],
  ["POST", "/api/webhooks", "POST /api/webhook"],
  ["POST", "/api/v3/webhook", "POST /api/v2/webhook"],
  ["GET", "/api/v3/webhook/list", "GET /api/v2/webhook/list"],
  ["GET", "/API/Webhook/List", "GET /api/webhook/list"],
  ["POST", "/api/webhook/create", "POST /api/webhook"],
  ["DELETE", "/api/webhook/17", "DELETE /api/webhook"],
  ["GET", "/webhook/list", "GET /api/webhook/list"],
  ["GET", "//api/webhook/list", "GET /api/webhook/list"],
  ["GET", "/openapi.yaml", "GET /openapi.json"],
  ["POST", "/WebhookService/ListWebhooks", "POST /webhook.v1.WebhookService/ListWebhooks"],
  ["POST", "/api/events", "POST /webhook.v1.EventService/PublishEvent"],
  ["POST", "/api/v1/event", "POST /webhook.v1.EventService/PublishEvent"],
  ["POST", "/api/webhook/publish", "POST /webhook.v1.EventService/PublishEvent"],
  ["GET", "/api/deliveries", "POST /webhook.v1.DeliveryService/ListDeliveries"],
  ["GET", "/api/keys", "POST /webhook.v1.ApiKeyService/ListApiKeys"],
  ["POST", "/api/v1/replay", "POST /webhook.v1.ReplayService/StartReplay"],
  ["POST", "/api/v1/endpoint", "POST /webhook.v1.EndpointService/CreateEndpoint"],
  ["GET", "/api/audit-log", "POST /webhook.v1.AuditService/ListAuditEntries"],
  ["GET", "/api/docs", "GET /docs"],
  ["GET", "/health", "GET /healthz"],
])("§7.4: %s %s is 404 and told of %s", async (method, path, meant) => {
  const { status, envelope } = await api.rest(method, path);
  expect([status, envelope.Warnings]).toEqual([
    404,
    [`no such path: ${path}; did you mean ${meant}? all paths: /openapi.json`],
  ]);
});

test.each([
  ["short", "/nothing-like-it"],
  ["long", `/api/webhook/${"x".repeat(5_000)}`],
])("a %s path that is like no other is told of none", async (_length, path) => {
  const { status, envelope } = await api.rest("GET", path);
  expect(status).toBe(404);
  expect(envelope.Warnings[0]).toMatch(/^no such path: \S+; all paths: \/openapi\.json$/);
});

test("an API key or signing secret in a path, a body or a header is not repeated", async () => {
  const key = `whk_${"k".repeat(43)}`;
  const secret = `whsec_${"s".repeat(30)}+/==`;
  const json = { "Content-Type": "application/json" };
  const requests: [string, string, { headers?: Record<string, string>; body?: string }, number][] = [
    ["GET", `/api/webhook/${key}`, {}, 404],
    ["GET", `/api/${"x".repeat(90)}/${key}`, {}, 404],
    ["GET", `/api/webhook/list%3Fkey%3D${key}`, {}, 404],
    ["GET", `/api/my_${key}`, {}, 404],
    ["GET", `/api/webhook/${encodeURIComponent(`whsec_+/${secret.slice(6)}`)}`, {}, 404],
    ["POST", `/webhook.v1.WebhookService/${key}`, { headers: json, body: "{}" }, 404],
    ["POST", "/api/webhook", { headers: json, body: `{"process": "${key}", "url": "${secret}"}` }, 400],
    ["POST", "/api/webhook", { headers: json, body: `{"url": ${secret}` }, 400],
    ["POST", "/api/webhook", { headers: { "Content-Type": key }, body: "{}" }, 400],
    ["POST", "/webhook.v1.WebhookService/CreateWebhook", { headers: json, body: `{"${key}": 1}` }, 400],
    [
      "POST",
      "/webhook.v1.WebhookService/CreateWebhook",
      { headers: json, body: '{"process": "whsec_sss+/="}' },
      400,
    ],
  ];
  for (const [method, path, { headers, body }, expected] of requests) {
    const answer = await fetch(`${api.url}${path}`, {
      method,
      headers: { "X-Service-Key": api.adminKey, ...headers },
      ...(body === undefined ? {} : { body }),
    });
    const text = await answer.text();
    expect([answer.status, text]).toEqual([expected, expect.not.stringMatching(/kkk|sss|a2tr|c3Nz/)]);
    expect(text).toMatch(/whk_…|whsec_…|x…|Unexpected token 'w'/);
  }
});

test("a field that a message lacks is told all the fields it has", async () => {
  const answer = await fetch(`${api.url}/webhook.v1.WebhookService/CreateWebhook`, {
    method: "POST",
    headers: { "X-Service-Key": api.adminKey, "Content-Type": "application/json" },
    body: '{"process": 1, "address": "https://receiver.example/field"}',
  });
  const { message } = (await answer.json()) as { message: string };
  expect([answer.status, message]).toEqual([
    400,
    'CreateWebhookRequest has no field "address"; allowed: process, url',
  ]);
});

const UNARY = SERVICES.flatMap(({ methods }) => methods.filter(({ methodKind }) => methodKind === "unary"));

test.each(UNARY.map((method) => [`${method.parent.name}/${method.name}`, method] as const))(
  "%s tells its fields if it is sent one that it lacks",
  async (_name, { name, parent, input }) => {
    const answer = await fetch(`${api.url}/${parent.typeName}/${name}`, {
      method: "POST",
      headers: { "X-Service-Key": api.adminKey, "Content-Type": "application/json" },
      body: '{"noSuchField": 1}',
    });
    const { message } = (await answer.json()) as { message: string };
    const fields = input.fields.map(({ jsonName }) => jsonName);
    expect([answer.status, message]).toEqual([
      400,
      expect.stringMatching(`^${input.name} has no field .*; allowed: ${fields.join(", ") || "none"}$`),
    ]);
  },
);

test.each([
  ["webhook.v1.WebhookService/ListWebhooks", { health: ["BROKEN"] }, "WEBHOOK_HEALTH_HEALTHY"],
  ["webhook.v1.DeliveryService/ListDeliveries", { states: ["LOST"] }, "DELIVERY_STATE_PENDING"],
  ["webhook.v1.ApiKeyService/CreateApiKey", { permissions: ["ALL"] }, "PERMISSION_READ_ADMINISTRATIVE_DATA"],
])("an unknown name of a value is told the names of %s", async (path, body, first) => {
  const answer = await fetch(`${api.url}/${path}`, {
    method: "POST",
    headers: { "X-Service-Key": api.adminKey, "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  const { message } = (await answer.json()) as { message: string };
  expect(message).toContain(`; allowed: ${first}, `);
});

const MISPLACED = "hunter2-secret-token";
test.each([
  ['{"settings": {"bearer": "hunter2-secret-token"}}', "BearerAuthentication must be an object"],
  ['{"settings": {"bearer": {"token": 98765432101}}}', "BearerAuthentication.token must be a string"],
  [
    '{"settings": {"basic": {"hunter2-secret-token": "x"}}}',
    "BasicAuthentication has no field of this name; allowed: username, password",
  ],
  [
    '{"settings": {"headers": [{"name": "X", "value": 98765432101}]}}',
    "RequestHeader.value must be a string",
  ],
  ['{"settings": {"headers": "hunter2-secret-token"}}', "must be a list, each item an object"],
  ['{"settings": {"bearer": {"token": hunter2-secret-token}}}', "is not valid JSON: Unexpected token 'h'"],
  ['{"webhookId": "hunter2-secret-token"}', "webhook_id must be a whole number of 64 bits"],
  ["hunter2-secret-token", "is not valid JSON: Unexpected token 'h'"],
  ['{"settings": {"bearer": {"token": "hunter2-secret-token"', "is not valid JSON: Expected"],
])("JSON that does not fit is told what is allowed, and not repeated: %s", async (body, expected) => {
  const answer = await fetch(`${api.url}/webhook.v1.WebhookService/SetWebhookRequestSettings`, {
    method: "POST",
    headers: { "X-Service-Key": api.adminKey, "Content-Type": "application/json" },
    body,
  });
  const text = await answer.text();
  const { message } = JSON.parse(text) as { message: string };
  expect([answer.status, message]).toEqual([400, expect.stringContaining(expected)]);
  for (const part of [MISPLACED, "hunter2", "98765432101"]) expect(text).not.toContain(part);
});

test("a REST body that is not JSON is not repeated", async () => {
  const { status, text } = await api.rest("POST", "/api/webhook", {
    raw: { body: `{"url": ${MISPLACED}}`, type: "application/json" },
  });
  expect([status, text]).toEqual([400, expect.stringContaining("not valid JSON: Unexpected token 'h'")]);
  expect(text).not.toContain("hunter2");
});

test("times and durations that do not fit are told an example", async () => {
  const call = async (path: string, body: object) => {
    const answer = await fetch(`${api.url}/${path}`, {
      method: "POST",
      headers: { "X-Service-Key": api.adminKey, "Content-Type": "application/json" },
      body: JSON.stringify(body),
    });
    return ((await answer.json()) as { message: string }).message;
  };
  expect(
    await call("webhook.v1.EventService/PublishEvent", { orderDispatched: { dispatchedAt: "yesterday" } }),
  ).toBe("Timestamp must be a time of the years 0001 to 9999, such as 2026-11-21T09:30:00Z");
  expect(await call("webhook.v1.ApiKeyService/RotateApiKey", { gracePeriod: "a day" })).toBe(
    "Duration must be a number of seconds, such as 86400s",
  );
});

/** Every method that takes an enumeration, and one message as plain JSON. */
const ENUMERATIONS = SERVICES.flatMap(({ typeName, methods }) =>
  methods.flatMap(({ name, input, methodKind }) =>
    input.fields.flatMap((field) =>
      field.enum && methodKind === "unary"
        ? [{ path: `${typeName}/${name}`, field, values: field.enum }]
        : [],
    ),
  ),
);

test.each(ENUMERATIONS.map((one) => [`${one.field.jsonName} of ${one.path}`, one] as const))(
  "a name that an enumeration lacks is told all the names it has: %s",
  async (_title, { path, field, values }) => {
    const answer = await fetch(`${api.url}/${path}`, {
      method: "POST",
      headers: { "X-Service-Key": api.adminKey, "Content-Type": "application/json" },
      body: JSON.stringify({ [field.jsonName]: field.fieldKind === "list" ? ["Mistaken"] : "Mistaken" }),
    });
    const { message } = (await answer.json()) as { message: string };
    const names = values.values.filter(({ number }) => number !== 0).map(({ name }) => name);
    expect(answer.status).toBe(400);
    expect(message).toContain('"Mistaken"');
    // A long list is cut at the end of the message.
    expect(`${message} `).toContain(`; allowed: ${names.slice(0, 3).join(", ")}`);
  },
);

test("a number that an enumeration lacks is told all that it has", async () => {
  const webhooks = createClient(WebhookService, connect(api));
  const error = await failure(
    webhooks.createWebhook({ process: 99 as never, url: "https://receiver.example/enum" }),
  );
  expect([error?.code, error?.rawMessage]).toEqual([
    Code.InvalidArgument,
    "process 99 is not an event type; allowed: 1 (OrderDispatched), 2 (DocumentCreated), 3 (StockLevelChanged), 10001 (WebhookFailing), 10002 (WebhookRecovered), 10003 (WebhookDisabled), 10004 (DeliveryFailed)",
  ]);
});
