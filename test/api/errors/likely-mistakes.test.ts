import { expect, test } from "vitest";
import { SERVICES } from "../../../src/app/services.ts";
import { useApi } from "../../support/test-api.ts";
import { callHttp } from "../../support/wire.ts";

const api = await useApi();

const SECRET = "a-key-that-nobody-is-to-read";
const NOT_THERE =
  "the header X-Service-Key is missing: send your API key in it, not in Authorization, which this service does not read";

test.each([`Bearer ${SECRET}`, `Basic ${Buffer.from(`key:${SECRET}`).toString("base64")}`, SECRET])(
  "§5.6: a key in Authorization is told its header and not repeated: %s",
  async (authorization) => {
    const headers = { Authorization: authorization };
    const { status, envelope } = await api.rest("GET", "/api/webhook/list", { key: null, headers });
    expect([status, envelope]).toEqual([401, { Success: false, Data: null, Warnings: [NOT_THERE] }]);
    const call = await callHttp(api, "WebhookService/ListWebhooks", { key: null, headers });
    expect(call).toMatchObject({ status: 401, json: { code: "unauthenticated", message: NOT_THERE } });
    expect(call.text).not.toContain(SECRET);
  },
);

test.each(["/api/webhooks", "/nothing-like-it", `/api/webhook/${"x".repeat(5_000)}`])(
  "§7.4: a path that does not exist is 404 and told of the description: %s",
  async (path) => {
    const { status, envelope } = await api.rest("GET", path);
    const said = expect.stringMatching(/^no such path: \S+; all paths: \/openapi\.json$/);
    expect([status, envelope.Warnings]).toEqual([404, [said]]);
  },
);

const KEY = `whk_${"k".repeat(43)}`;
const SIGNING = `whsec_${"s".repeat(30)}+/==`;
const CREATE = "WebhookService/CreateWebhook";
const REST = "/api/webhook";
test.each<[path: string, status: number, call: Parameters<typeof callHttp>[2]]>([
  [`${REST}/${KEY}`, 404, { verb: "GET" }],
  [`${REST}/list%3Fkey%3D${KEY}`, 404, { verb: "GET" }],
  [`/api/my_${KEY}`, 404, { verb: "GET" }],
  [`${REST}/${encodeURIComponent(`whsec_+/${SIGNING.slice(6)}`)}`, 404, { verb: "GET" }],
  [`WebhookService/${KEY}`, 404, {}],
  [REST, 400, { body: `{"process": "${KEY}", "url": "${SIGNING}"}` }],
  [REST, 400, { body: `{"url": ${SIGNING}` }],
  [REST, 400, { body: `{"url": ${KEY}}` }],
  [REST, 400, { type: KEY }],
  [CREATE, 400, { body: `{"${KEY}": 1}` }],
  [CREATE, 400, { body: '{"process": "whsec_sss+/="}' }],
])(
  "an API key or signing secret in a path, a body or a header is not repeated: %s",
  async (path, status, call) => {
    const answer = await callHttp(api, path, call);
    expect([answer.status, answer.text]).toEqual([status, expect.not.stringMatching(/kkk|sss|a2tr|c3Nz/)]);
    expect(answer.text).toMatch(/whk_…|whsec_…|x…|Unexpected token 'w'/);
  },
);

const UNARY = SERVICES.flatMap(({ typeName, methods }) =>
  methods
    .filter(({ methodKind }) => methodKind === "unary")
    .map((method) => [`/${typeName}/${method.name}`, method] as const),
);

test.each(UNARY)("%s tells its fields if it is sent one that it lacks", async (path, { input }) => {
  const { status, json } = await callHttp(api, path, { body: '{"noSuchField": 1}' });
  const fields = input.fields.map(({ jsonName }) => jsonName).join(", ") || "none";
  expect([status, json.message]).toEqual([
    400,
    `${input.name} has no field "noSuchField"; allowed: ${fields}`,
  ]);
});

const ENUMERATIONS = UNARY.flatMap(([path, { input }]) =>
  input.fields.flatMap((field) => (field.enum ? [[field.jsonName, path, field, field.enum] as const] : [])),
);

test.each(ENUMERATIONS)(
  "a name that an enumeration lacks is told all the names it has: %s of %s",
  async (name, path, field, { values }) => {
    const body = JSON.stringify({ [name]: field.fieldKind === "list" ? ["Mistaken"] : "Mistaken" });
    const { status, json } = await callHttp(api, path, { body });
    const names = values.filter(({ number }) => number !== 0).map((value) => value.name);
    // A long list is cut at the end of the message.
    const allowed = `; allowed: ${names.slice(0, 3).join(", ")}`;
    expect([status, json.message]).toEqual([400, expect.stringContaining(allowed)]);
    expect(json.message).toContain('"Mistaken"');
  },
);

test("the error of an unknown enum number lists the known ones", async () => {
  const body = '{"process": 99, "url": "https://receiver.example/enum"}';
  expect((await callHttp(api, CREATE, { body })).json).toMatchObject({
    code: "invalid_argument",
    message: expect.stringMatching(/^process 99 is not an event type; allowed: 1 \(OrderDispatched\), .*\)$/),
  });
});

const MISPLACED = "hunter2-secret-token";
test.each([
  [`{"settings": {"bearer": "${MISPLACED}"}}`, "BearerAuthentication must be an object"],
  ['{"settings": {"bearer": {"token": 98765432101}}}', "BearerAuthentication.token must be a string"],
  [
    `{"settings": {"basic": {"${MISPLACED}": "x"}}}`,
    "BasicAuthentication has no field of this name; allowed: us",
  ],
  ['{"settings": {"headers": [{"value": 98765432101}]}}', "RequestHeader.value must be a string"],
  [`{"settings": {"headers": "${MISPLACED}"}}`, "must be a list, each item an object"],
  [`{"webhookId": "${MISPLACED}"}`, "webhookId must be a whole number of 64 bits"],
  [MISPLACED, "is not valid JSON: Unexpected token 'h'"],
  [`{"settings": {"bearer": {"token": "${MISPLACED}"`, "is not valid JSON: Expected"],
])("JSON that does not fit is told what is allowed, and not repeated: %s", async (body, says) => {
  const { status, text, json } = await callHttp(api, "WebhookService/SetWebhookRequestSettings", { body });
  expect([status, json.message]).toEqual([400, expect.stringContaining(says)]);
  expect(text).not.toMatch(/hunter2|secret-token|98765432101/);
});

test("the error of an invalid duration has an example", async () => {
  const { json } = await callHttp(api, "ApiKeyService/RotateApiKey", { body: '{"gracePeriod": "a day"}' });
  expect(json.message).toBe("RotateApiKeyRequest.gracePeriod must be a number of seconds, such as 86400s");
});

test("an event type's alias where its number is needed gets an error that says to send the number", async () => {
  const body = '{"process": "refund.issued", "url": "https://receiver.example/enum"}';
  const says = '"refund.issued" (registered event types are sent by their number';
  expect((await callHttp(api, CREATE, { body })).json.message).toContain(says);
});

test("two members of a oneof are named as in JSON", async () => {
  const body = '{"idempotencyKey": "a", "userId": "b", "orderDispatched": {}, "documentCreated": {}}';
  const { json } = await callHttp(api, "EventService/PublishEvent", { body });
  expect(json.message).toBe("data is set by both orderDispatched and documentCreated; send one of them");
});
