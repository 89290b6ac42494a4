import { randomUUID } from "node:crypto";
import { type Timestamp, timestampDate } from "@bufbuild/protobuf/wkt";
import { type Client, Code, ConnectError, createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, expect, test } from "vitest";
import {
  type Delivery,
  DeliveryService,
  DeliveryState,
  type GetDeliveryResponse,
} from "../../../../gen/webhook/v1/delivery_pb.ts";
import { EventService } from "../../../../gen/webhook/v1/event_pb.ts";
import { grpc } from "../../../support/clients.ts";
import { changeDelivery, storeDeliveries } from "../../../support/stored-deliveries.ts";
import { startTestApi, type TestApi } from "../../../support/test-api.ts";

let api: TestApi;
let deliveries: Client<typeof DeliveryService>;
const webhookIds: number[] = [];
const eventIds: string[] = [];

beforeAll(async () => {
  api = await startTestApi();
  deliveries = createClient(DeliveryService, grpc(api));
  const events = createClient(EventService, grpc(api));
  for (const path of ["a", "b", "c"]) {
    const made = await api.rest("POST", "/api/webhook", {
      json: { process: 3, url: `https://receiver.example/${path}` },
    });
    webhookIds.push(made.envelope.Data.Id);
  }
  for (let level = 0n; level < 7n; level++) {
    const { eventId } = await events.publishEvent({
      idempotencyKey: randomUUID(),
      userId: "u",
      data: {
        case: "stockLevelChanged",
        value: { productId: 1n, sku: "A", location: "Oslo", level, changedAt: { seconds: 1n } },
      },
    });
    eventIds.push(eventId);
  }
});
afterAll(() => api.stop());

const failure = (call: Promise<unknown>) =>
  call.then(
    () => undefined,
    (error: unknown) => ConnectError.from(error),
  );

test("deliveries are listed newest first, page by page, each once, also while new ones come", async () => {
  const seen: string[] = [];
  let pageToken = "";
  do {
    const page = await deliveries.listDeliveries({ pageSize: 5, pageToken });
    expect(page.deliveries.length).toBeLessThanOrEqual(5);
    seen.push(...page.deliveries.map((delivery) => delivery.id));
    pageToken = page.nextPageToken;
    if (seen.length === 5) {
      await storeDeliveries(api.context.db, [{ webhookId: webhookIds[0] as number }]);
    }
  } while (pageToken !== "");
  expect(seen).toHaveLength(21);
  expect(seen).toEqual([...new Set(seen)].sort().reverse());
});

test("deliveries are found by webhook, by event and by state, and by all of them", async () => {
  const webhookId = BigInt(webhookIds[1] as number);
  const eventId = eventIds[3] as string;
  const ofWebhook = await deliveries.listDeliveries({ webhookId });
  expect(ofWebhook.deliveries.map((delivery) => delivery.eventId)).toEqual([...eventIds].reverse());
  const ofEvent = await deliveries.listDeliveries({ eventId });
  expect(ofEvent.deliveries.map((delivery) => Number(delivery.webhookId)).sort()).toEqual(
    [...webhookIds].sort(),
  );
  const { id } = ofEvent.deliveries.find((delivery) => delivery.webhookId === webhookId) as Delivery;
  await changeDelivery(api.context.db, id, { state: "failed", reason: "interrupted" });
  const both = await deliveries.listDeliveries({
    webhookId,
    states: [DeliveryState.FAILED, DeliveryState.CANCELLED],
  });
  expect(both.deliveries).toHaveLength(1);
  expect(both.deliveries[0]).toMatchObject({
    eventId,
    webhookId,
    webhookProcess: 3,
    url: "https://receiver.example/b",
    state: DeliveryState.FAILED,
    attemptCount: 0,
    reason: "interrupted",
  });
  expect(both.deliveries[0]?.finished).toBeDefined();
});

test("a delivery is answered with every attempt in order", async () => {
  const { db } = api.context;
  const { deliveries: found } = await deliveries.listDeliveries({ eventId: eventIds[0] as string });
  const deliveryId = found[0]?.id as string;
  const retryAt = new Date("2030-01-01T00:00:00Z");
  const started = new Date("2026-01-01T00:00:00.123Z");
  const tried = [
    { started, durationMs: 12, status: 503, responseStart: "busy" },
    { started, durationMs: 15_000, error: "no answer within 15 s" },
  ];
  await changeDelivery(db, deliveryId, { state: "retrying", attempts: 2, tried, retryAt });
  const open = await deliveries.getDelivery({ deliveryId });
  expect(open.delivery).toMatchObject({ state: DeliveryState.RETRYING, attemptCount: 2 });
  expect(Number(open.delivery?.nextAttempt?.seconds)).toBe(retryAt.getTime() / 1_000);
  expect(attemptsOf(open)).toEqual([
    [1, 503, undefined, "busy", 12],
    [2, undefined, "no answer within 15 s", undefined, 15_000],
  ]);

  // The attempt that ends a delivery is kept in the delivery's own row.
  await db("attempts").where("delivery_id", deliveryId).delete();
  const ending = { started, durationMs: 7, status: 200, responseStart: "ok" };
  await changeDelivery(db, deliveryId, { state: "delivered", attempts: 3, tried: [...tried, ending] });
  const ended = await deliveries.getDelivery({ deliveryId });
  expect(ended.delivery).toMatchObject({ state: DeliveryState.DELIVERED, attemptCount: 3 });
  expect(attemptsOf(ended)).toEqual([...attemptsOf(open), [3, 200, undefined, "ok", 7]]);
  expect(ended.attempts.map((attempt) => timestampDate(attempt.started as Timestamp))).toEqual(
    Array(3).fill(started),
  );
});

const attemptsOf = ({ attempts }: GetDeliveryResponse) =>
  attempts.map(({ number, status, error, responseStart, durationMs }) => [
    number,
    status,
    error,
    responseStart,
    durationMs,
  ]);

test("unknown deliveries are NOT_FOUND, and what cannot be an id, a page or a state is INVALID_ARGUMENT", async () => {
  expect((await failure(deliveries.getDelivery({ deliveryId: randomUUID() })))?.code).toBe(Code.NotFound);
  const refused = await Promise.all([
    failure(deliveries.getDelivery({ deliveryId: "x" })),
    failure(deliveries.getDelivery({})),
    failure(deliveries.listDeliveries({ eventId: "x" })),
    failure(deliveries.listDeliveries({ pageSize: 1_001 })),
    failure(deliveries.listDeliveries({ pageSize: -1 })),
    failure(deliveries.listDeliveries({ pageToken: "x" })),
    failure(deliveries.listDeliveries({ states: [DeliveryState.UNSPECIFIED] })),
  ]);
  expect(refused.map((error) => error?.code)).toEqual(refused.map(() => Code.InvalidArgument));
});
