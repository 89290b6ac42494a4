import { type Timestamp, timestampDate } from "@bufbuild/protobuf/wkt";
import { expect, test } from "vitest";
import {
  type Delivery,
  DeliveryService,
  DeliveryState,
  type GetDeliveryResponse,
} from "../../../../gen/webhook/v1/delivery_pb.ts";
import { EventService } from "../../../../gen/webhook/v1/event_pb.ts";
import { anOrder } from "../../../support/grpc-calls.ts";
import { changeDelivery, storeDeliveries } from "../../../support/stored-deliveries.ts";
import { useApi } from "../../../support/test-api.ts";

const api = await useApi();
const deliveries = api.client(DeliveryService);
const webhookIds: bigint[] = [];
for (const path of ["a", "b", "c"])
  webhookIds.push(await api.register({ url: `https://receiver.example/${path}` }));
const eventIds: string[] = [];
for (let n = 0; n < 7; n += 1)
  eventIds.push((await api.client(EventService).publishEvent(anOrder())).eventId);

test("deliveries are listed newest first, page by page, each once, also while new ones come", async () => {
  const seen: string[] = [];
  let pageToken = "";
  do {
    const page = await deliveries.listDeliveries({ pageSize: 5, pageToken });
    expect(page.deliveries.length).toBeLessThanOrEqual(5);
    seen.push(...page.deliveries.map(({ id }) => id));
    pageToken = page.nextPageToken;
    if (seen.length === 5) await storeDeliveries(api.context.db, [{ webhookId: webhookIds[0] as bigint }]);
  } while (pageToken !== "");
  expect(seen).toHaveLength(21);
  expect(seen).toEqual([...new Set(seen)].sort().reverse());
});

test("deliveries are found by webhook, by event and by state, and by all of them", async () => {
  const webhookId = webhookIds[1] as bigint;
  const eventId = eventIds[3] as string;
  const ofWebhook = await deliveries.listDeliveries({ webhookId });
  expect(ofWebhook.deliveries.map((delivery) => delivery.eventId)).toEqual(eventIds.toReversed());
  const ofEvent = await deliveries.listDeliveries({ eventId });
  expect(ofEvent.deliveries.map((delivery) => delivery.webhookId).sort()).toEqual(webhookIds.toSorted());
  const { id } = ofEvent.deliveries.find((delivery) => delivery.webhookId === webhookId) as Delivery;
  await changeDelivery(api.context.db, id, { state: "failed", reason: "interrupted" });
  const states = [DeliveryState.FAILED, DeliveryState.CANCELLED];
  const both = await deliveries.listDeliveries({ webhookId, states });
  expect(both.deliveries).toEqual([
    expect.objectContaining({
      eventId,
      webhookId,
      webhookProcess: 1,
      url: "https://receiver.example/b",
      state: DeliveryState.FAILED,
      attemptCount: 0,
      reason: "interrupted",
      finished: expect.anything(),
    }),
  ]);
});

const attemptsOf = ({ attempts }: GetDeliveryResponse) =>
  attempts.map(({ number, status, error, responseStart, durationMs }) => [
    number,
    status,
    error,
    responseStart,
    durationMs,
  ]);

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
