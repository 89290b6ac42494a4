import { randomUUID } from "node:crypto";
import {
  createFileRegistry,
  type DescMessage,
  fromBinary,
  fromJsonString,
  toBinary,
} from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { createClient } from "@connectrpc/connect";
import fc from "fast-check";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import type { ReceivedRequest } from "../../demo/receiver.ts";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import type { WebhookProcess } from "../../gen/webhook/v1/event_pb.ts";
import { EventTypeChangeKind, EventTypeService } from "../../gen/webhook/v1/event_type_pb.ts";
import { Permission } from "../../gen/webhook/v1/options_pb.ts";
import { setRegisteredTypes } from "../../src/contract/catalogue.ts";
import { ALL_PERMISSIONS, createApiKey } from "../../src/keys/api-keys.ts";
import { createInstalledApp } from "../../src/keys/installed-apps.ts";
import { rows } from "../../src/lib/pg/database.ts";
import { buildFileSet } from "../support/registered-types.ts";
import { schemaValidator } from "../support/schema-validator.ts";
import type { Envelope } from "../support/test-api.ts";
import { fileService, WOKEN } from "../support/test-service.ts";
import { type Payload, THIRTY_FILES, THIRTY_TYPES, type ThirtyType } from "../support/thirty-types.ts";
import { eventually } from "../support/wait.ts";

// The rules of the contract that name event types, for thirty that the operator has registered.

/** Payloads of each event type. */
const PAYLOADS = 3;

const service = fileService(WOKEN);
const set = buildFileSet(THIRTY_FILES);
const messages = createFileRegistry(fromBinary(FileDescriptorSetSchema, set));

/** An event type with its number, and its payloads. */
interface Registered extends ThirtyType {
  number: number;
  payloads: Payload[];
}
const types: Registered[] = [];
let app: { id: string; secret: string };

beforeAll(async () => {
  const { changes } = await createClient(EventTypeService, service.transport).registerEventTypes({
    fileDescriptorSet: set,
  });
  for (const type of THIRTY_TYPES) {
    const change = changes.find(({ name }) => name === type.name);
    expect(change, type.name).toMatchObject({
      alias: type.alias ?? "",
      message: type.message,
      kind: EventTypeChangeKind.ADDED,
    });
    const number = change?.process ?? 0;
    types.push({ ...type, number, payloads: fc.sample(type.values, { numRuns: PAYLOADS, seed: number }) });
  }
  const { id } = await createInstalledApp(service.db, "Shop");
  const { secret } = await createApiKey(service.db, {
    name: "shop",
    permissions: ALL_PERMISSIONS.filter((permission) => permission !== Permission.MANAGE_EVENT_TYPES),
    installedAppId: id,
  });
  app = { id, secret };
});
afterEach(() => service.removeWebhooks());
afterAll(() => setRegisteredTypes([]));

const url = (path: string) => `${service.url}${path}`;
async function rest(method: string, path: string, parameters?: object, key = service.adminKey) {
  const response = await fetch(url(`/api/webhook${path}`), {
    method,
    headers: { "x-service-key": key, "content-type": "application/json" },
    ...(parameters ? { body: JSON.stringify(parameters) } : {}),
  });
  return { status: response.status, envelope: (await response.json()) as Envelope };
}
const list = async () => (await rest("GET", "/list")).envelope.Data as ListedWebhook[];
type ListedWebhook = { Id: number; WebhookProcess: string; Url: string };

const fields = (idempotencyKey: string) => ({ idempotencyKey, userId: "tenant-7" });
/** Publishes as generated clients do. */
async function publishAny({ message }: ThirtyType, { json }: Payload, key: string = randomUUID()) {
  const desc = messages.getMessage(message) as DescMessage;
  const value = toBinary(desc, fromJsonString(desc, json, { registry: messages }));
  const event = { typeUrl: `type.googleapis.com/${message}`, value };
  return (await service.events.publishEvent({ ...fields(key), data: { case: "event", value: event } }))
    .eventId;
}
/** Publishes JSON as text, over gRPC. */
async function publishText({ name, alias }: ThirtyType, { json }: Payload, key: string = randomUUID()) {
  const value = { process: alias ?? name, payload: json };
  return (await service.events.publishEvent({ ...fields(key), data: { case: "jsonEvent", value } })).eventId;
}
/** Publishes JSON as an object within JSON, with 64-bit integers as numbers. */
async function publishInline({ message }: ThirtyType, { json }: Payload, key: string = randomUUID()) {
  const payload = json.replaceAll(/:"(-?\d{12,})"/g, ":$1");
  const { idempotencyKey, userId } = fields(key);
  const response = await fetch(url("/webhook.v1.EventService/PublishEvent"), {
    method: "POST",
    headers: { "x-service-key": service.adminKey, "content-type": "application/json" },
    body: `{"idempotencyKey":"${idempotencyKey}","userId":"${userId}","jsonEvent":{"process":"${message}","payload":${payload}}}`,
  });
  const answer = (await response.json()) as { eventId: string };
  expect([response.status, answer]).toMatchObject([200, { eventId: expect.any(String) }]);
  return answer.eventId;
}

const headerOf = ({ headers }: ReceivedRequest, name: string) => headers[name.toLowerCase()];
const bodiesAt = (received: readonly ReceivedRequest[], path: string) =>
  received
    .filter((request) => request.path === path)
    .map(({ body }) => body)
    .toSorted();
const untilEnded = () =>
  eventually(async () =>
    expect(
      await service.db("all_deliveries").whereIn("state", ["pending", "retrying"]).first(),
    ).toBeUndefined(),
  );

test("§2.1, §4.1, §4.2: webhooks are registered by number, a second time changes nothing, and the list has names", async () => {
  for (const { number, name } of types) {
    const parameters = { process: number, url: `https://receiver.example/${name}` };
    const made = await rest("POST", "", parameters);
    expect(made).toMatchObject({
      status: 200,
      envelope: { Data: { WebhookProcess: name, Application: null } },
    });
    const again = await rest("POST", "", parameters, app.secret);
    expect(again.envelope.Data).toEqual(made.envelope.Data);
    const ofApp = await rest("POST", "", { ...parameters, url: `${parameters.url}/app` }, app.secret);
    expect(ofApp.envelope.Data).toMatchObject({ WebhookProcess: name, Application: app.id });
  }
  const listed = await list();
  expect(listed.map(({ WebhookProcess }) => WebhookProcess)).toEqual(
    types.flatMap(({ name }) => [name, name]),
  );
  for (const webhook of listed)
    expect(Object.keys(webhook)).toEqual([
      "Id",
      "Created",
      "Modified",
      "WebhookProcess",
      "Url",
      "Application",
    ]);
});

test("§5.4: the key determines which event types may be subscribed to", async () => {
  const allowed = types.filter((_, n) => n % 2 === 0);
  const { secret } = await createApiKey(service.db, {
    name: "half",
    permissions: [Permission.WRITE_ADMINISTRATIVE_DATA],
    allowedProcesses: allowed.map(({ number }) => number),
  });
  for (const type of types) {
    const parameters = { process: type.number, url: `https://receiver.example/half/${type.name}` };
    const { status, envelope } = await rest("POST", "", parameters, secret);
    expect([type.name, status, envelope.Success]).toEqual(
      allowed.includes(type) ? [type.name, 200, true] : [type.name, 403, false],
    );
  }
});

test("§6.1.1, §6.2, §6.3: events, published as messages and as JSON, are delivered with the contract's headers and JSON, filtered, and found", async () => {
  // Those of the app's webhooks are accepted at the second attempt.
  const receiver = await service.receiver(({ path, attempt }) =>
    path.startsWith("/app/") && attempt === 1 ? 503 : 200,
  );
  for (const { number, name, key, payloads } of types) {
    await rest("POST", "", { process: number, url: `${receiver.url}/all/${name}` });
    await rest("POST", "", { process: number, url: `${receiver.url}/app/${name}` }, app.secret);
    const webhookId = await service.register(`${receiver.url}/filtered/${name}`, { process: number });
    await service.webhooks.updateWebhook({ webhookId, filter: `event.${key} == ${payloads[0]?.first}` });
  }
  const published = new Map<Payload, string[]>();
  async function publish(type: Registered): Promise<void> {
    for (const [n, payload] of type.payloads.entries()) {
      const key = randomUUID();
      const events = [await publishAny(type, payload, key), await publishText(type, payload)];
      published.set(payload, events);
      // The same event is the same request, however it is encoded.
      const repeat = n % 2 === 0 ? publishInline : publishText;
      expect([type.name, await repeat(type, payload, key)]).toEqual([type.name, events[0]]);
    }
  }
  await Promise.all(types.map(publish));
  await receiver.until(({ length }) => length >= types.length * (PAYLOADS * (2 + 4) + 2));
  await untilEnded();

  const { received } = receiver;
  for (const { name, payloads } of types) {
    const twice = payloads.flatMap(({ sent }) => [sent, sent]).toSorted();
    expect(bodiesAt(received, `/all/${name}`)).toEqual(twice);
    expect(bodiesAt(received, `/app/${name}`)).toEqual([...twice, ...twice].toSorted());
    expect(bodiesAt(received, `/filtered/${name}`)).toEqual([payloads[0]?.sent, payloads[0]?.sent]);
  }
  for (const request of received) {
    const [, kind, name] = request.path.split("/");
    expect(request).toMatchObject({
      method: "POST",
      headers: {
        "content-type": "application/json; charset=utf-8",
        "x-service-webhook-process": name,
        "x-service-webhook-id": expect.stringMatching(/^\S+$/),
      },
    });
    expect(headerOf(request, "X-Service-UserId")).toBe(kind === "app" ? "tenant-7" : undefined);
    expect(headerOf(request, "X-Service-Webhook-Test")).toBeUndefined();
  }
  // An id for each delivery, the same for each of its attempts.
  const ids = new Set(received.map((request) => headerOf(request, "X-Service-Webhook-Id")));
  expect(ids.size).toBe(types.length * (PAYLOADS * 4 + 2));
  const states = await rows<{ state: string; n: number }>(
    service.db,
    "select state, count(*)::int as n from all_deliveries group by 1 order by 1",
  );
  expect(states).toEqual([
    { state: "delivered", n: ids.size },
    { state: "filtered", n: types.length * (PAYLOADS - 1) * 2 },
  ]);

  for (const {
    name,
    payloads: [, second],
  } of types) {
    const search = String(second?.first).replaceAll('"', "");
    const { deliveries } = await service.deliveries.listDeliveries({
      search,
      states: [DeliveryState.DELIVERED],
    });
    expect([name, deliveries.map(({ eventId }) => eventId).toSorted()]).toEqual([
      name,
      published
        .get(second as Payload)
        ?.flatMap((id) => [id, id])
        .toSorted(),
    ]);
    for (const delivery of deliveries) expect(delivery.webhookProcessName).toBe(name);
  }
});

test("§6.1.4: a delivery fails after three retries", async () => {
  const receiver = await service.receiver(() => 500);
  for (const { number, name } of types)
    await service.register(`${receiver.url}/${name}`, { process: number });
  for (const type of types) await publishInline(type, type.payloads[0] as Payload);
  await receiver.until(({ length }) => length >= types.length * 4);
  await untilEnded();
  for (const {
    name,
    number,
    payloads: [first],
  } of types) {
    const sent = Array.from({ length: 4 }, () => first?.sent);
    expect(bodiesAt(receiver.received, `/${name}`)).toEqual(sent);
    const { deliveries } = await service.deliveries.listDeliveries({
      process: number as WebhookProcess,
      states: [DeliveryState.FAILED],
    });
    expect(deliveries).toMatchObject([{ attemptCount: 4, webhookProcessName: name }]);
  }
});

test("samples and payloads fit the JSON Schema, test events have the sample, and the comment is the description", async () => {
  const receiver = await service.receiver();
  const { processes } = await service.webhooks.listProcesses({});
  const byNumber = new Map(processes.map((process) => [process.number, process]));
  for (const { number, name, alias, comment, payloads } of types) {
    const described = byNumber.get(number);
    expect(described).toMatchObject({ name, ...(alias ? { alias } : {}), description: comment });
    const { schema = "", sample = "" } = described ?? {};
    const isValid = schemaValidator(schema);
    for (const text of [sample, ...payloads.map(({ sent }) => sent)])
      expect([isValid(JSON.parse(text)), isValid.errors, text]).toEqual([true, null, text]);
    const webhookId = await service.register(`${receiver.url}/${name}`, { process: number });
    await service.webhooks.sendTestEvent({ webhookId });
  }
  const received = await receiver.until(({ length }) => length >= types.length);
  for (const { number, name } of types) {
    expect(bodiesAt(received, `/${name}`)).toEqual([byNumber.get(number)?.sample]);
    const request = received.find(({ path }) => path === `/${name}`);
    expect(request?.headers).toMatchObject({
      "x-service-webhook-process": name,
      "x-service-webhook-test": "true",
    });
  }
});

test("§4.3: a webhook is deleted by its id from the list, once; then its events go nowhere", async () => {
  for (const { number, name } of types)
    await rest("POST", "", { process: number, url: `https://receiver.example/${name}` });
  const listed = await list();
  expect(listed).toHaveLength(types.length);
  for (const { Id, WebhookProcess } of listed) {
    expect((await rest("DELETE", "", { webhookId: Id })).envelope).toMatchObject({
      Success: true,
      Data: { Id, WebhookProcess },
    });
    expect(await rest("DELETE", "", { webhookId: Id })).toMatchObject({
      status: 400,
      envelope: { Success: false, Data: null, Warnings: [expect.stringContaining(String(Id))] },
    });
  }
  expect(await list()).toEqual([]);
  for (const type of types) {
    const eventId = await publishText(type, type.payloads[2] as Payload);
    expect((await service.deliveries.listDeliveries({ eventId })).deliveries).toEqual([]);
  }
});
