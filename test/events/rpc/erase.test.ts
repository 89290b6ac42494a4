import { Code } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { DeliveryState } from "../../../gen/webhook/v1/delivery_pb.ts";
import { erasePayloads } from "../../../src/events/erase.ts";
import { rows } from "../../../src/lib/pg/database.ts";
import { sendAgain } from "../../../src/log/send-again.ts";
import { claimPending } from "../../../src/queue/claims.ts";
import { recordAttempts } from "../../../src/queue/results.ts";
import { ALL, freshClaimant, result, SPACING } from "../../queue/queue.ts";
import { failure } from "../../support/failure.ts";
import { anOrder, waitingQueries } from "../../support/grpc-calls.ts";
import { imbalance, readLedger } from "../../support/ledger.ts";
import { useApi } from "../../support/test-api.ts";

const api = await useApi();
const { db } = api.context;
const { events, deliveries } = api;
for (let n = 0; n < 2; n += 1) await api.register();

const publish = async (userId: string) => (await events.publishEvent(anOrder({}, { userId }))).eventId;
const erase = (userId: string) => events.erasePayloads({ userId });

/** The deliveries of an event, claimed by a worker of their own. */
async function claimed(eventId: string) {
  const { deliveries: found } = await claimPending(db, await freshClaimant(db), ALL);
  return found.filter((each) => each.eventId === eventId);
}
const record = async (sent: Awaited<ReturnType<typeof claimed>>, status: number) => [
  ...(
    await recordAttempts(
      db,
      sent.map((delivery) => result(delivery, status)),
      SPACING,
    )
  ).values(),
];

/** Publishes an event of a user whose deliveries then succeed; answers the id of one. */
async function publishDelivered(userId: string): Promise<string> {
  const own = await claimed(await publish(userId));
  await record(own, 200);
  await db("workers").delete();
  return own[0]?.id as string;
}

test("a user's payloads and the responses to them are erased; ids, states and counts stay, open deliveries are cancelled", async () => {
  const arrived = await publishDelivered("anna");
  const open = await publish("anna");
  await record((await claimed(open)).slice(0, 1), 503);
  await db("workers").delete();
  const other = await publish("bert");

  expect(await erase("anna")).toMatchObject({ erased: 2, cancelled: 2, more: false });
  const stored = await db("events").orderBy("id");
  expect(stored.map(({ user_id, payload }) => [user_id, payload === null])).toEqual([
    ["anna", true],
    ["anna", true],
    ["bert", false],
  ]);
  expect(await rows(db, "select from all_attempts where response_start is not null")).toEqual([]);
  expect(imbalance(await readLedger(db))).toBe(0n);

  const statesOf = async (eventId: string) =>
    (await deliveries.listDeliveries({ eventId })).deliveries.map(({ state, reason }) => [state, reason]);
  expect(await statesOf(open)).toEqual(Array(2).fill([DeliveryState.CANCELLED, "payload erased"]));
  expect(await statesOf(other)).toEqual(Array(2).fill([DeliveryState.PENDING, undefined]));
  expect(await deliveries.getDelivery({ deliveryId: arrived })).toMatchObject({
    delivery: { state: DeliveryState.DELIVERED, attemptCount: 1 },
    attempts: [{ number: 1, status: 200 }],
    request: { body: "", erased: true },
  });
  expect(await erase("anna")).toMatchObject({ erased: 0, cancelled: 0, more: false });
});

test("a delivery that is being sent while its payload is erased keeps its claim", async () => {
  const own = await claimed(await publish("carl"));
  expect(await erase("carl")).toMatchObject({ erased: 1, cancelled: 0 });
  expect(await record(own, 200)).toEqual(["delivered", "delivered"]);
});

test("a delivery that is sent again while its payload is being erased is refused", async () => {
  const deliveryId = await publishDelivered("dora");
  const erasing = await db.transaction();
  await erasePayloads(erasing, "dora", 1_000);
  const refused = failure(deliveries.sendAgain({ deliveryId }));
  await expect.poll(() => waitingQueries(api)).toBe(1);
  await erasing.commit();
  expect(await refused).toMatchObject({
    code: Code.FailedPrecondition,
    rawMessage: `the payload of delivery ${deliveryId} was erased; publish the event again with its data`,
  });
});

test("an erasure waits for a delivery that is being sent again, and cancels it", async () => {
  const deliveryId = await publishDelivered("emil");
  const sending = await db.transaction();
  await sendAgain(sending, "everything", deliveryId, 30);
  const erased = erase("emil");
  await expect.poll(() => waitingQueries(api)).toBe(1);
  await sending.commit();
  expect(await erased).toMatchObject({ erased: 1, cancelled: 1 });
  const { delivery } = await deliveries.getDelivery({ deliveryId });
  expect(delivery).toMatchObject({ state: DeliveryState.CANCELLED, reason: "payload erased" });
});
