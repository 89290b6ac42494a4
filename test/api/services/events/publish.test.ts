import { randomUUID } from "node:crypto";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { EventService, type PublishEventRequestSchema } from "../../../../gen/webhook/v1/event_pb.ts";
import { connect } from "../../../support/clients.ts";
import { ONLY, useApi } from "../../../support/test-api.ts";

const api = await useApi();
const events = api.client(EventService, (await api.key({ permissions: ONLY.publish })).secret);

type Request = MessageInitShape<typeof PublishEventRequestSchema>;
const stock = (more: object = {}): Request => ({
  idempotencyKey: randomUUID(),
  userId: "tenant-1",
  data: {
    case: "stockLevelChanged",
    value: {
      productId: 9007199254740993n,
      sku: "A-1",
      location: "Oslo",
      level: -3n,
      changedAt: { seconds: 1_790_000_000n },
    },
  },
  ...more,
});
const register = async (process: number, path: string) =>
  (await api.rest("POST", "/api/webhook", { json: { process, url: `https://receiver.example${path}` } }))
    .envelope.Data.Id as number;
const failure = (call: Promise<unknown>) =>
  call.then(
    () => undefined,
    (error: unknown) => ConnectError.from(error),
  );
const stored = async (eventId: string) => ({
  event: (await api.context.db("events").where("id", eventId))[0],
  deliveries: await api.context.db("all_deliveries").where("event_id", eventId),
});

test("an event is stored once with the body receivers get, and queued for each live webhook of its process", async () => {
  const ids = [await register(3, "/p/1"), await register(3, "/p/2")];
  await register(1, "/p/other");
  const gone = await register(3, "/p/gone");
  await api.rest("DELETE", "/api/webhook", { json: { webhookId: gone } });

  const answer = await events.publishEvent(stock());
  expect(answer).toMatchObject({ deliveriesQueued: 2, duplicate: false });
  expect(answer.eventId).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7/);
  const { event, deliveries } = await stored(answer.eventId);
  expect(event).toMatchObject({ process: 3, user_id: "tenant-1", recipients: 2 });
  expect(event.payload).toBe(
    '{"ProductId":9007199254740993,"Sku":"A-1","Location":"Oslo","PreviousLevel":null,"Level":-3,"ChangedAt":"2026-09-21T14:13:20"}',
  );
  expect(deliveries.map((row) => Number(row.webhook_id)).sort()).toEqual(ids.sort());
  // The ids of an event and its deliveries begin alike, with the time.
  expect(
    deliveries.every((row) => row.state === "pending" && row.id.slice(0, 18) === event.id.slice(0, 18)),
  ).toBe(true);
});

test("an event that nobody is registered for is stored and queues nothing", async () => {
  const answer = await events.publishEvent(
    stock({
      data: {
        case: "documentCreated",
        value: { documentId: 1n, kind: 2, number: "D", createdAt: { seconds: 1n } },
      },
    }),
  );
  expect(answer).toMatchObject({ deliveriesQueued: 0, duplicate: false });
  expect((await stored(answer.eventId)).event.payload).toContain('"Kind":"CreditNote"');
});

test("publishing the same again queues nothing and answers the first event", async () => {
  const request = stock();
  const first = await events.publishEvent(request);
  const again = await events.publishEvent(request);
  expect(again).toMatchObject({ eventId: first.eventId, deliveriesQueued: 0, duplicate: true });
  expect((await stored(first.eventId)).deliveries).toHaveLength(first.deliveriesQueued);
});

test("the same key with another content is ALREADY_EXISTS, and under another API key another event", async () => {
  const request = stock();
  const first = await events.publishEvent(request);
  const conflict = await failure(events.publishEvent({ ...request, userId: "tenant-2" }));
  expect(conflict?.code).toBe(Code.AlreadyExists);
  expect(conflict?.rawMessage).toContain("idempotency_key");
  const other = api.client(EventService);
  expect((await other.publishEvent(request)).eventId).not.toBe(first.eventId);
});

test("twenty publishes of one key at once make one event", async () => {
  const request = stock();
  const answers = await Promise.all(Array.from({ length: 20 }, () => events.publishEvent(request)));
  expect(new Set(answers.map((answer) => answer.eventId)).size).toBe(1);
  expect(answers.filter((answer) => !answer.duplicate)).toHaveLength(1);
  const eventId = answers[0]?.eventId as string;
  expect((await stored(eventId)).deliveries).toHaveLength((await stored(eventId)).event.recipients);
});

test("the time of an event is kept, and is that of publishing when left out", async () => {
  const told = await events.publishEvent(stock({ time: { seconds: 1_000_000_000n, nanos: 123_456_789 } }));
  expect((await stored(told.eventId)).event.occurred.toISOString()).toBe("2001-09-09T01:46:40.123Z");
  const before = Date.now();
  const now = await events.publishEvent(stock());
  const occurred = (await stored(now.eventId)).event.occurred.getTime();
  // The database's clock may have told it, which counts finer.
  expect(occurred).toBeGreaterThanOrEqual(before - 1);
  expect(occurred).toBeLessThanOrEqual(Date.now() + 1);
});

const long = (characters: number) => "ä".repeat(characters);
test.each<[string, object, string]>([
  ["no idempotency key", { idempotencyKey: "" }, "idempotency_key is required"],
  [
    "an idempotency key of 256 characters",
    { idempotencyKey: long(256) },
    "idempotency_key must have at most 255",
  ],
  ["a null character in the key", { idempotencyKey: "a\0" }, "idempotency_key"],
  ["no user", { userId: "" }, "user_id is required"],
  [
    "a user of 129 characters",
    { userId: "u".repeat(129) },
    "user_id has 129 characters; allowed: 1 to 128 visible ASCII characters (no spaces)",
  ],
  ["a space in the user", { userId: "a b" }, "user_id has a space as character 2; allowed: 1 to 128 visible"],
  [
    "a line break in the user",
    { userId: "a\r\nX: y" },
    "user_id has a control character as character 2; allowed",
  ],
  ["an umlaut in the user", { userId: "ü" }, "user_id has a character outside ASCII as character 1; allowed"],
  [
    "no data",
    { data: { case: undefined } },
    "data is required: set one of: order_dispatched, document_created",
  ],
  [
    "a time before the year 1",
    { time: { seconds: -62_135_596_801n } },
    "time must lie in the years 0001 to 9999",
  ],
  [
    "empty data",
    { data: { case: "stockLevelChanged", value: {} } },
    "stock_level_changed.product_id is required",
  ],
])("publishing with %s is INVALID_ARGUMENT and says what to change", async (_case, more, message) => {
  const refused = await failure(events.publishEvent(stock(more)));
  expect(refused?.code).toBe(Code.InvalidArgument);
  expect(refused?.rawMessage).toContain(message);
});

test("keys and users of the longest allowed lengths are taken", async () => {
  const answer = await events.publishEvent(stock({ idempotencyKey: long(255), userId: "~".repeat(128) }));
  expect(answer.duplicate).toBe(false);
});

test("a payload of 256 KiB is taken, and a byte more is told its size", async () => {
  const sized = (number: string) =>
    stock({
      data: {
        case: "documentCreated",
        value: { documentId: 1n, kind: 1, number, createdAt: { seconds: 1n } },
      },
    });
  const { event } = await stored((await events.publishEvent(sized("x"))).eventId);
  const room = 262_144 - Buffer.byteLength(event.payload) + 1;
  await events.publishEvent(sized("x".repeat(room)));
  const refused = await failure(events.publishEvent(sized("x".repeat(room + 1))));
  expect(refused?.code).toBe(Code.InvalidArgument);
  expect(refused?.rawMessage).toBe("document_created is 262145 bytes as JSON, more than the 262144 allowed");
});

test("publishing takes Publish_Events, and works over Connect with JSON too", async () => {
  const reader = await api.key({ permissions: ONLY.read });
  const refused = await failure(api.client(EventService, reader.secret).publishEvent(stock()));
  expect(refused?.code).toBe(Code.PermissionDenied);
  expect(refused?.rawMessage).toContain("Publish_Events");
  const json = createClient(EventService, connect(api, api.adminKey, false));
  expect((await json.publishEvent(stock())).duplicate).toBe(false);
});
