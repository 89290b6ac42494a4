import { randomUUID } from "node:crypto";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code, createClient } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { EventService, type PublishEventRequestSchema } from "../../../gen/webhook/v1/event_pb.ts";
import { connect } from "../../support/clients.ts";
import { expectWithin, timed } from "../../support/database-time.ts";
import { expectRefused } from "../../support/refusals.ts";
import { useApi } from "../../support/test-api.ts";

const api = await useApi();
const { db } = api.context;
const { events } = api;

type Request = MessageInitShape<typeof PublishEventRequestSchema>;
const value = { productId: 9007199254740993n, sku: "A-1", location: "Oslo", level: -3n };
const stock = (more: object = {}): Request => ({
  idempotencyKey: randomUUID(),
  userId: "tenant-1",
  data: { case: "stockLevelChanged", value: { ...value, changedAt: { seconds: 1_790_000_000n } } },
  ...more,
});
const document = (number: string) =>
  stock({
    data: { case: "documentCreated", value: { documentId: 1n, kind: 2, number, createdAt: { seconds: 1n } } },
  });
const eventOf = async ({ eventId }: { eventId: string }) => db("events").where("id", eventId).first();
const deliveriesOf = ({ eventId }: { eventId: string }) => db("all_deliveries").where("event_id", eventId);

test("an event is stored once with the body receivers get, and queued for each live webhook of its process", async () => {
  const ids = [await api.register({ process: 3 }), await api.register({ process: 3 })];
  await api.register();
  const webhookId = String(await api.register({ process: 3 }));
  await api.rest("DELETE", "/api/webhook", { json: { webhookId } });

  const answer = await events.publishEvent(stock());
  expect(answer).toMatchObject({ deliveriesQueued: 2, duplicate: false });
  expect(answer.eventId).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7/);
  const [event, deliveries] = [await eventOf(answer), await deliveriesOf(answer)];
  expect(event).toMatchObject({ process: 3, user_id: "tenant-1", recipients: 2 });
  expect(event.payload).toBe(
    '{"ProductId":9007199254740993,"Sku":"A-1","Location":"Oslo","PreviousLevel":null,"Level":-3,"ChangedAt":"2026-09-21T14:13:20"}',
  );
  const webhookIds = deliveries.map((row) => row.webhook_id);
  expect(webhookIds.sort((one, another) => Number(one - another))).toEqual(ids);
  // The ids of an event and its deliveries begin alike, with the time.
  for (const { state, id } of deliveries)
    expect([state, id.slice(0, 18)]).toEqual(["pending", event.id.slice(0, 18)]);
});

test("an event that nobody is registered for is stored and queues nothing; its time is kept, or that of publishing", async () => {
  const answer = await events.publishEvent(document("D"));
  expect(answer).toMatchObject({ deliveriesQueued: 0, duplicate: false });
  expect((await eventOf(answer)).payload).toContain('"Kind":"CreditNote"');
  const told = await events.publishEvent(stock({ time: { seconds: 1_000_000_000n, nanos: 123_456_789 } }));
  expect((await eventOf(told)).occurred.toISOString()).toBe("2001-09-09T01:46:40.123Z");
  const [untold, span] = await timed(db, () => events.publishEvent(stock()));
  expectWithin(span, (await eventOf(untold)).occurred);
});

test("publishing the same again queues nothing and answers the first event, over Connect with JSON too", async () => {
  const request = stock();
  const first = await events.publishEvent(request);
  const json = createClient(EventService, connect(api, api.adminKey, false));
  for (const client of [events, json]) {
    const again = await client.publishEvent(request);
    expect(again).toMatchObject({ eventId: first.eventId, deliveriesQueued: 0, duplicate: true });
  }
  expect(await deliveriesOf(first)).toHaveLength(first.deliveriesQueued);
  // The idempotency keys of another API key are separate.
  const other = api.as((await api.key()).secret).events;
  expect((await other.publishEvent(request)).eventId).not.toBe(first.eventId);
});

test("twenty publishes of one key at once make one event", async () => {
  const request = stock();
  const answers = await Promise.all(Array.from({ length: 20 }, () => events.publishEvent(request)));
  expect(new Set(answers.map((answer) => answer.eventId)).size).toBe(1);
  const made = answers.filter((answer) => !answer.duplicate);
  expect(made).toHaveLength(1);
  for (const answer of made) expect(await deliveriesOf(answer)).toHaveLength(answer.deliveriesQueued);
});

test.each<[string, object, string]>([
  ["a space", { userId: "a b" }, "user_id has a space as character 2; allowed: 1 to 128 visible"],
  ["a line break", { userId: "a\r\nX: y" }, "user_id has a control character as character 2; allowed"],
  ["an umlaut", { userId: "ü" }, "user_id has a character outside ASCII as character 1; allowed"],
  ["the year 0", { time: { seconds: -62_135_596_801n } }, "time must lie in the years 0001 to 9999"],
  [
    "no data",
    { data: { case: "stockLevelChanged", value: {} } },
    "stock_level_changed.product_id is required",
  ],
])("publishing with %s is INVALID_ARGUMENT and says what to change", async (_case, more, message) => {
  await expectRefused(events.publishEvent(stock(more)), Code.InvalidArgument, message);
});

test("a payload of 256 KiB is accepted, and a larger one gets an error with its size", async () => {
  const { payload } = await eventOf(await events.publishEvent(document("x")));
  const room = 262_144 - Buffer.byteLength(payload) + 1;
  // The key's limit is in characters, not in bytes.
  const idempotencyKey = "ä".repeat(255);
  await events.publishEvent({ ...document("x".repeat(room)), idempotencyKey });
  const message = "document_created is 262145 bytes as JSON, more than the 262144 allowed";
  await expectRefused(events.publishEvent(document("x".repeat(room + 1))), Code.InvalidArgument, message);
});
