import SwaggerParser from "@apidevtools/swagger-parser";
import { create, fromBinary } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema, timestampFromMs } from "@bufbuild/protobuf/wkt";
import { Code } from "@connectrpc/connect";
import { afterAll, expect, test } from "vitest";
import { ServerReflection } from "../../gen/grpc/reflection/v1/reflection_pb.ts";
import { ExportFormat } from "../../gen/webhook/v1/delivery_pb.ts";
import type { WebhookProcess } from "../../gen/webhook/v1/event_pb.ts";
import { WebhookSchema } from "../../gen/webhook/v1/webhook_pb.ts";
import { eventTypes, isNotice, processChoices, setRegisteredTypes } from "../../src/contract/catalogue.ts";
import { jsonWriter } from "../../src/contract/json/writer.ts";
import { BILLING_FILE, billingTypes } from "../support/billing-types.ts";
import { described } from "../support/described-answers.ts";
import { expectRefused } from "../support/refusals.ts";
import { registeredTypes } from "../support/registered-types.ts";
import { freshUrl, type RestRequest, useApi } from "../support/test-api.ts";

const api = await useApi();
const types = billingTypes();
setRegisteredTypes(types);
afterAll(() => setRegisteredTypes([]));

const PAID = 1004 as WebhookProcess;
const BOTH = { webhookProcess: PAID, webhookProcessName: "InvoicePaid" };
const SAMPLE =
  '{"InvoiceNumber":"INV-1001","Total":{"Units":9223372036854775807,"Currency":"EUR"},' +
  '"Lines":[{"Sku":"sku"}],"PaidAt":"2026-11-21T09:30:00"}';

const url = freshUrl();
test.each<[string, RestRequest]>([
  ["its number", { json: { process: 1004, url } }],
  ["its number as text", { form: { process: "1004", url } }],
  ["its name", { json: { process: "InvoicePaid", url } }],
  ["its alias", { query: { process: "invoice.paid", url } }],
])(
  "§4.2, §2.1: REST registers a webhook for a registered event type by %s, and returns its name",
  async (_by, request) => {
    const { status, envelope } = await api.rest("POST", "/api/webhook", request);
    expect([status, envelope.Data.WebhookProcess]).toEqual([200, "InvoicePaid"]);
    const { envelope: list } = await api.rest("GET", "/api/webhook/list");
    expect(list.Data).toEqual([envelope.Data]);
  },
);

test.each([1006, "1006", "invoicepaid", "invoice_paid", "OrderDispatched", "billing.v1.InvoicePaid"])(
  "REST refuses %j as an event type, and lists the registered ones with their aliases",
  async (process) => {
    const { status, envelope } = await api.rest("POST", "/api/webhook", { json: { process, url } });
    expect([status, envelope.Warnings[0]]).toEqual([
      400,
      expect.stringMatching(
        /not a known value; allowed: 1 \(OrderDispatched\), .*1004 \(InvoicePaid, invoice.paid\), 1005 \(Sub/,
      ),
    ]);
  },
);

test("an error lists no more than 50 event types, and says how many more there are", () => {
  const [paid] = types;
  if (!paid) throw new Error("no type");
  const many = Array.from({ length: 5_000 }, (_, n) => ({ ...paid, number: 1_000 + n, name: `Type${n}` }));
  setRegisteredTypes(many);
  try {
    const choices = processChoices();
    expect(choices.match(/\d+ \(/g)).toHaveLength(50);
    expect(choices).toMatch(new RegExp(`, and ${eventTypes().length - 50} more, which ListProcesses lists$`));
  } finally {
    setRegisteredTypes(types);
  }
});

test("the number of an event type that the process does not know stays a number in REST", () => {
  const webhook = create(WebhookSchema, { webhookProcess: 9_999 as WebhookProcess });
  expect(
    jsonWriter(
      WebhookSchema,
      "rest",
    )({ ...webhook, created: timestampFromMs(0), modified: timestampFromMs(0) }),
  ).toContain('"WebhookProcess":9999');
});

/** Everything that names the event type of a webhook, delivery, event, key, endpoint, audit entry or replay. */
async function everyAnswer() {
  const { secret } = await api.key({ allowedProcesses: [PAID] });
  const { endpoint } = await api.as(secret).endpoints.createEndpoint({ processes: [PAID], url: freshUrl() });
  const webhookId = endpoint?.webhooks[0]?.id ?? 0n;
  const { deliveryId, eventId } = await api.webhooks.sendTestEvent({ webhookId });
  const exported = async (format: ExportFormat) => {
    let text = "";
    for await (const { lines } of api.deliveries.exportDeliveries({ process: PAID, format })) text += lines;
    return text;
  };
  return {
    webhookId,
    deliveryId,
    endpoint,
    webhook: (await api.webhooks.getWebhook({ webhookId })).webhook,
    deliveries: (await api.deliveries.listDeliveries({ process: PAID })).deliveries,
    one: await api.deliveries.getDelivery({ deliveryId }),
    event: await api.deliveries.getEvent({ eventId }),
    entries: (await api.audit.listAuditEntries({ targetId: String(webhookId) })).entries,
    key: (await api.keys.createApiKey({ name: "billing", permissions: [1], allowedProcesses: [PAID, 1] }))
      .apiKey,
    replay: (await api.replays.startReplay({ what: { case: "resend", value: { process: PAID } } })).replay,
    csv: await exported(ExportFormat.CSV),
    lines: await exported(ExportFormat.JSON_LINES),
  };
}

test("every message with an event type has its number and its name", async () => {
  const found = await everyAnswer();
  expect(found.webhook).toMatchObject(BOTH);
  expect(found.endpoint?.webhooks).toMatchObject([BOTH]);
  expect(found.deliveries).toMatchObject([{ ...BOTH, subject: "INV-1001" }]);
  expect(found.one).toMatchObject({
    delivery: BOTH,
    event: { process: PAID, webhookProcessName: "InvoicePaid" },
    request: {
      body: SAMPLE,
      headers: expect.arrayContaining([
        expect.objectContaining({ name: "X-Service-Webhook-Process", value: "InvoicePaid" }),
      ]),
    },
  });
  expect(found.event).toMatchObject({
    event: { process: PAID, webhookProcessName: "InvoicePaid", subject: "INV-1001" },
    payload: SAMPLE,
  });
  expect(found.entries).toEqual(expect.arrayContaining([expect.objectContaining(BOTH)]));
  expect(found.entries.flatMap(({ changes }) => changes)).toContainEqual(
    expect.objectContaining({ field: "webhook_process", after: "InvoicePaid" }),
  );
  expect(found.key).toMatchObject({
    allowedProcesses: [PAID, 1],
    allowedProcessNames: ["InvoicePaid", "OrderDispatched"],
  });
  expect(found.replay).toMatchObject({
    webhookProcessName: "InvoicePaid",
    what: { value: { process: PAID } },
  });
  expect(found.csv).toContain(",InvoicePaid,INV-1001,");
  expect(JSON.parse(found.lines)).toMatchObject(BOTH);
});

test("Connect's JSON takes and returns the number of a registered event type, and its name beside it", async () => {
  const response = await fetch(`${api.url}/webhook.v1.WebhookService/CreateWebhook`, {
    method: "POST",
    headers: { "content-type": "application/json", "x-service-key": api.adminKey },
    body: JSON.stringify({ process: 1004, url }),
  });
  expect(await response.json()).toMatchObject({ webhook: BOTH });
});

test("a key that may not subscribe to a registered event type is told so by name", async () => {
  const { secret } = await api.key({ allowedProcesses: [1] });
  const call = api.as(secret).webhooks.createWebhook({ process: PAID, url: freshUrl() });
  await expectRefused(
    call,
    Code.PermissionDenied,
    "may not subscribe to InvoicePaid, only to OrderDispatched",
  );
});

test("the catalogue describes registered event types with alias, sample, schema and filter fields", async () => {
  const { processes } = await api.webhooks.listProcesses({});
  expect(processes.map(({ number }) => number)).toEqual(eventTypes().map(({ number }) => number));
  const [paid, ended] = processes.filter(({ number }) => number === 1004 || number === 1005);
  expect(paid).toMatchObject({
    name: "InvoicePaid",
    alias: "invoice.paid",
    description: "A customer has paid an invoice.",
    sample: SAMPLE,
    deprecated: false,
    filterFields: [
      { path: "user_id", type: "string" },
      { path: "event.invoice_number", type: "string" },
      { path: "event.total", type: "Money" },
      { path: "event.lines", type: "list of InvoiceLine" },
      { path: "event.paid_at", type: "Timestamp" },
      { path: "event.total.units", type: "int" },
      { path: "event.total.currency", type: "string" },
      { path: "event.lines[0].sku", type: "string" },
    ],
  });
  expect(JSON.parse(paid?.schema ?? "")).toMatchObject({
    title: "InvoicePaid",
    required: ["InvoiceNumber", "Total", "Lines", "PaidAt"],
  });
  expect(ended).toMatchObject({ name: "SubscriptionEnded", deprecated: true });
  expect(ended?.alias).toBeUndefined();
  const { envelope } = await api.rest("GET", "/api/webhook/processes");
  expect(envelope.Data).toContainEqual({
    Number: 1004,
    Name: "InvoicePaid",
    Description: "A customer has paid an invoice.",
    Sample: JSON.parse(SAMPLE),
    Schema: JSON.parse(paid?.schema ?? ""),
  });
});

test("a brief catalogue has names and descriptions only, and one of some event types has no others", async () => {
  const { processes } = await api.webhooks.listProcesses({ brief: true, processes: [PAID, 1] });
  expect(processes).toMatchObject([
    { number: 1, name: "OrderDispatched", sample: "", schema: "", filterFields: [] },
    { number: 1004, alias: "invoice.paid", sample: "", schema: "", filterFields: [] },
  ]);
  const unknown = api.webhooks.listProcesses({ processes: [9_999 as WebhookProcess] });
  await expectRefused(unknown, Code.InvalidArgument, "9999 is not an event type");
});

type DescribedBody = { schema: { properties: { process: object } } };
/** The OpenAPI document as it is served. */
const served = async () => (await fetch(`${api.url}/openapi.json`)).text();

test("/openapi.json describes the deliveries of registered event types, and their numbers for process", async () => {
  const text = await served();
  const document = JSON.parse(text);
  const { post } = document.webhooks.InvoicePaid;
  expect(Object.keys(document.webhooks)).toEqual(eventTypes().map(({ name }) => name));
  expect(post).toMatchObject({
    operationId: "receiveInvoicePaid",
    summary: "A customer has paid an invoice",
    description: expect.stringMatching(/Also called `invoice.paid`.*within 7.5 seconds/s),
    requestBody: {
      content: { "application/json": { schema: { $ref: "#/components/schemas/billing.v1.InvoicePaid" } } },
    },
  });
  expect(document.webhooks.SubscriptionEnded.post.deprecated).toBe(true);
  // With every digit.
  expect(text).toContain('"Units":9223372036854775807');
  for (const path of ["/api/webhook", "/api/v1/webhook", "/api/v2/webhook"])
    for (const { schema } of Object.values<DescribedBody>(document.paths[path].post.requestBody.content))
      expect(schema.properties.process).toMatchObject({
        enum: eventTypes().map(({ number }) => number),
        "x-enum-varnames": eventTypes().map(({ name }) => name),
      });
  expect(document.components.schemas.Webhook.properties.WebhookProcess.enum).toContain("InvoicePaid");
  await expect(SwaggerParser.validate(document, { resolve: { external: false } })).resolves.toBeDefined();
});

test("/openapi.json keeps its own schemas beside messages of the same names, which have no package", async () => {
  const header = 'syntax = "proto3"; import "webhook/v1/options.proto";';
  const option = 'option (webhook.v1.event_type) = {name: "Hooked"};';
  const file = `${header} message Webhook { ${option} Failure why = 1; } message Failure { string reason = 1; }`;
  setRegisteredTypes(registeredTypes({ "hooks.proto": file }));
  try {
    const document = JSON.parse(await served());
    const { schemas } = document.components;
    expect(Object.keys(schemas.Webhook.properties)).toContain("WebhookProcess");
    const { $ref } = document.webhooks.Hooked.post.requestBody.content["application/json"].schema;
    expect(Object.keys(schemas[$ref.split("/").at(-1)].properties)).toEqual(["Why"]);
    await expect(SwaggerParser.validate(document, { resolve: { external: false } })).resolves.toBeDefined();
  } finally {
    setRegisteredTypes(types);
  }
});

test("/openapi.json follows the catalogue, and is compressed as asked", async () => {
  setRegisteredTypes([]);
  try {
    expect(JSON.parse(await served())).toEqual(described);
  } finally {
    setRegisteredTypes(types);
  }
  for (const encoding of ["identity", "gzip", "br"]) {
    const response = await fetch(`${api.url}/openapi.json`, { headers: { "accept-encoding": encoding } });
    expect(response.headers.get("content-encoding") ?? "identity").toBe(encoding);
    expect(await response.json()).toMatchObject({ webhooks: { InvoicePaid: expect.anything() } });
  }
});

test("reflection serves the files of registered event types by name and by symbol, each file once a stream", async () => {
  const questions = [
    "billing.v1.InvoicePaid",
    "billing.v1.Money.units",
    BILLING_FILE,
    "webhook/v1/webhook.proto",
  ];
  async function* requests() {
    for (const value of questions) {
      const asked = value.endsWith(".proto")
        ? ("fileByFilename" as const)
        : ("fileContainingSymbol" as const);
      yield { messageRequest: { case: asked, value } };
    }
  }
  const files: string[][] = [];
  for await (const { messageResponse } of api.client(ServerReflection).serverReflectionInfo(requests())) {
    if (messageResponse.case !== "fileDescriptorResponse") throw new Error(String(messageResponse.case));
    const found = messageResponse.value.fileDescriptorProto;
    files.push(found.map((bytes) => fromBinary(FileDescriptorProtoSchema, bytes).name));
  }
  expect(files.map(([first]) => first)).toEqual([
    BILLING_FILE,
    BILLING_FILE,
    BILLING_FILE,
    "webhook/v1/webhook.proto",
  ]);
  expect(files[0]?.toSorted()).toEqual([
    BILLING_FILE,
    "google/protobuf/descriptor.proto",
    "google/protobuf/timestamp.proto",
    "webhook/v1/options.proto",
  ]);
  expect(files[1]).toEqual([BILLING_FILE]);
  // Those that the registered file imports were sent with it.
  expect(files[3]).not.toContain("webhook/v1/options.proto");
});

test("a deprecated event type takes no new webhooks, and an existing one is returned", async () => {
  const ENDED = 1005 as WebhookProcess;
  const offered = types.map((type) => ({ ...type, deprecated: false }));
  setRegisteredTypes(offered);
  const old = freshUrl();
  const { webhook } = await api.webhooks.createWebhook({ process: ENDED, url: old });
  const { endpoint } = await api.endpoints.createEndpoint({ processes: [PAID], url: freshUrl() });
  setRegisteredTypes(types);
  const again = await api.webhooks.createWebhook({ process: ENDED, url: old });
  expect([again.created, again.webhook?.id]).toEqual([false, webhook?.id]);
  const target = { case: "endpointId" as const, value: endpoint?.id ?? "" };
  for (const call of [
    () => api.webhooks.createWebhook({ process: ENDED, url: freshUrl() }),
    () => api.endpoints.createEndpoint({ processes: [PAID, ENDED], url: freshUrl() }),
    () => api.endpoints.updateEndpoint({ target, addProcesses: [ENDED] }),
  ])
    await expectRefused(
      call(),
      Code.FailedPrecondition,
      "SubscriptionEnded is deprecated: it takes no new webhooks",
    );
  const { deliveryId } = await api.webhooks.sendTestEvent({ webhookId: webhook?.id ?? 0n });
  expect(deliveryId).not.toBe("");
});

test("a registered event type is none of the service's notices", () => {
  expect(types.map(({ number }) => isNotice(number))).toEqual([false, false]);
});
