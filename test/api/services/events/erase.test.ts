import { randomUUID } from "node:crypto";
import { Code } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { DeliveryService, DeliveryState } from "../../../../gen/webhook/v1/delivery_pb.ts";
import { EventService } from "../../../../gen/webhook/v1/event_pb.ts";
import { rows } from "../../../../src/db/database.ts";
import { imbalance, readLedger } from "../../../../src/db/deliveries/ledger.ts";
import { sendAgain } from "../../../../src/db/deliveries/send-again.ts";
import { erasePayloads } from "../../../../src/db/events/erase.ts";
import { claimPending } from "../../../../src/db/queue/claims.ts";
import { recordAttempts } from "../../../../src/db/queue/results.ts";
import { freshClaimant, result, SPACING } from "../../../db/queue/queue.ts";
import { failure } from "../../../support/failure.ts";
import { waitingQueries } from "../../../support/grpc-calls.ts";
import { ONLY, useApi } from "../../../support/test-api.ts";

const api = await useApi();
const events = api.client(EventService);
const deliveries = api.client(DeliveryService);
for (let n = 0; n < 2; n += 1) await api.register();

function publish(userId: string) {
  return events.publishEvent({
    idempotencyKey: randomUUID(),
    userId,
    data: {
      case: "orderDispatched",
      value: { orderId: 1n, orderNumber: `SO of ${userId}`, dispatchedAt: { seconds: 1n } },
    },
  });
}

test("a user's payloads and the responses to them are erased; ids, states and counts stay, open deliveries are cancelled", async () => {
  const { db } = api.context;
  const [delivered, open, other] = [await publish("anna"), await publish("anna"), await publish("bert")];
  // The deliveries of the first event arrive; of the second one fails and one waits.
  const claimant = await freshClaimant(db);
  const { deliveries: claimed } = await claimPending(db, claimant, { limit: 100, after: 0n, excluded: [] });
  const first = claimed.filter(({ eventId }) => eventId === delivered.eventId);
  const [failing] = claimed.filter(({ eventId }) => eventId === open.eventId);
  await recordAttempts(
    db,
    [...first.map((each) => result(each, 200)), ...(failing ? [result(failing, 503)] : [])],
    SPACING,
  );
  await db.raw("delete from workers");

  expect(await events.erasePayloads({ userId: "anna" })).toMatchObject({
    erased: 2,
    cancelled: 2,
    more: false,
  });
  const stored = await rows(db, "select user_id, payload is null as erased from events order by id");
  expect(stored).toEqual([
    { user_id: "anna", erased: true },
    { user_id: "anna", erased: true },
    { user_id: "bert", erased: false },
  ]);
  const responses = "select count(*)::int as n from all_attempts where response_start is not null";
  expect(await rows(db, responses)).toEqual([{ n: 0 }]);
  expect(imbalance(await readLedger(db))).toBe(0n);

  const page = await deliveries.listDeliveries({ eventId: open.eventId });
  expect(page.deliveries.map(({ state, reason }) => [state, reason])).toEqual(
    Array(2).fill([DeliveryState.CANCELLED, "payload erased"]),
  );
  const arrived = await deliveries.getDelivery({ deliveryId: first[0]?.id as string });
  expect(arrived).toMatchObject({
    delivery: { state: DeliveryState.DELIVERED, attemptCount: 1 },
    attempts: [{ number: 1, status: 200 }],
    request: { body: "", erased: true },
  });
  const untouched = await deliveries.listDeliveries({ eventId: other.eventId });
  expect(untouched.deliveries.map(({ state }) => state)).toEqual(Array(2).fill(DeliveryState.PENDING));

  expect(await events.erasePayloads({ userId: "anna" })).toMatchObject({
    erased: 0,
    cancelled: 0,
    more: false,
  });
});

test("a delivery that is being sent while its payload is erased keeps its claim", async () => {
  const { db } = api.context;
  const { eventId } = await publish("carl");
  const claimant = await freshClaimant(db);
  const { deliveries: claimed } = await claimPending(db, claimant, { limit: 100, after: 0n, excluded: [] });
  const own = claimed.filter((each) => each.eventId === eventId);
  expect(await events.erasePayloads({ userId: "carl" })).toMatchObject({ erased: 1, cancelled: 0 });
  const states = await recordAttempts(
    db,
    own.map((each) => result(each, 200)),
    SPACING,
  );
  expect([...states.values()]).toEqual(["delivered", "delivered"]);
});

/** Publishes an event of a user whose deliveries then succeed; returns their ids. */
async function publishDelivered(userId: string): Promise<string[]> {
  const { db } = api.context;
  const { eventId } = await publish(userId);
  const claimant = await freshClaimant(db);
  const { deliveries: claimed } = await claimPending(db, claimant, { limit: 100, after: 0n, excluded: [] });
  const own = claimed.filter((each) => each.eventId === eventId);
  await recordAttempts(
    db,
    own.map((each) => result(each, 200)),
    SPACING,
  );
  await db.raw("delete from workers");
  return own.map(({ id }) => id);
}

test("a delivery that is sent again while its payload is being erased is refused", async () => {
  const [deliveryId] = await publishDelivered("dora");
  const erasing = await api.context.db.transaction();
  await erasePayloads(erasing, "dora", 1_000);
  const refused = failure(deliveries.sendAgain({ deliveryId: deliveryId as string }));
  await expect.poll(() => waitingQueries(api)).toBe(1);
  await erasing.commit();
  expect([(await refused)?.code, (await refused)?.rawMessage]).toEqual([
    Code.FailedPrecondition,
    `the payload of delivery ${deliveryId} was erased; publish the event again with its data`,
  ]);
});

test("an erasure waits for a delivery that is being sent again, and cancels it", async () => {
  const [deliveryId = ""] = await publishDelivered("emil");
  const sending = await api.context.db.transaction();
  await sendAgain(sending, "everything", deliveryId, 30);
  const erased = events.erasePayloads({ userId: "emil" });
  await expect.poll(() => waitingQueries(api)).toBe(1);
  await sending.commit();
  expect(await erased).toMatchObject({ erased: 1, cancelled: 1 });
  const { delivery } = await deliveries.getDelivery({ deliveryId });
  expect(delivery).toMatchObject({ state: DeliveryState.CANCELLED, reason: "payload erased" });
});

test("erasing takes Write_Administrative_Data, and a user", async () => {
  const { secret } = await api.key({ permissions: [...ONLY.read, ...ONLY.publish, ...ONLY.manage] });
  const refused = [
    await failure(api.client(EventService, secret).erasePayloads({ userId: "anna" })),
    await failure(events.erasePayloads({})),
  ];
  expect(refused.map((error) => error?.code)).toEqual([Code.PermissionDenied, Code.InvalidArgument]);
});

test("a user id that no event can have is INVALID_ARGUMENT", async () => {
  for (const userId of ["an\0na", "a".repeat(129)]) {
    const refused = await failure(events.erasePayloads({ userId }));
    expect([refused?.code, refused?.rawMessage]).toEqual([
      Code.InvalidArgument,
      expect.stringContaining("user_id must "),
    ]);
  }
});
