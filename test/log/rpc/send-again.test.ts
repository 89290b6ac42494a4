import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { Code } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { DeliveryState } from "../../../gen/webhook/v1/delivery_pb.ts";
import { sendManyAgain } from "../../../src/log/send-again.ts";
import { failure } from "../../support/failure.ts";
import { pagesOf } from "../../support/pages.ts";
import { expectRefused } from "../../support/refusals.ts";
import { changeDelivery, type Stored, storeDeliveries } from "../../support/stored-deliveries.ts";
import { useApi } from "../../support/test-api.ts";

const api = await useApi();
const { db } = api.context;
const { deliveries } = api;
const { PENDING, DELIVERED, FAILED, CANCELLED } = DeliveryState;
const ENDED = { state: "failed", attempts: 4, reason: "interrupted" } as const;

/** Stores deliveries of a webhook, of a fresh one unless given; answers their ids, oldest first. */
async function store(count: number, columns: Partial<Stored> = {}): Promise<string[]> {
  const webhookId = columns.webhookId ?? (await api.register());
  const one = { ...ENDED, ...columns, webhookId };
  return (await storeDeliveries(db, Array<Stored>(count).fill(one))).sort();
}

const row = (id: string) => db("all_deliveries").where("id", id).first();

test.each(["delivered", "failed", "cancelled"] as const)(
  "a %s delivery sent again is pending, with a new round that begins after its attempts",
  async (state) => {
    const attemptCount = 29_999;
    const [deliveryId = ""] = await store(1, { state, runId: 7, attempts: attemptCount });
    const { delivery } = await deliveries.sendAgain({ deliveryId });
    const round = { attemptCount, roundStart: attemptCount };
    expect(delivery).toMatchObject({ id: deliveryId, state: PENDING, ...round });
    const { reason, finished, nextAttempt } = delivery ?? {};
    expect([reason, finished, nextAttempt]).toEqual([undefined, undefined, undefined]);
    expect(await row(deliveryId)).toMatchObject({ round_start: attemptCount, claims: 0, run_id: null });
  },
);

test("a delivery that is sent again keeps every attempt that was recorded, with its number", async () => {
  const webhookId = await api.register();
  const tried = [{ status: 500 }, { status: 502 }];
  const failed = { webhookId, state: "failed" as const };
  const ids = await storeDeliveries(db, [
    { ...failed, tried },
    // Ended without an attempt, which makes none up.
    { ...failed, tried, reason: "expired", endedUntried: true },
    { ...failed, reason: "interrupted" },
  ]);
  const recorded = async (deliveryId: string) => {
    const { delivery, attempts } = await deliveries.getDelivery({ deliveryId });
    expect(await db("all_attempts").where("delivery_id", deliveryId)).toHaveLength(attempts.length);
    const statuses = attempts.map(({ number, status }) => [number, status]);
    return [delivery?.attemptCount, delivery?.roundStart, statuses];
  };
  const both = [
    [1, 500],
    [2, 502],
  ];
  await db("deliveries").where({ id: ids[0] }).update({ timing: "1 2" });
  for (const deliveryId of ids) await deliveries.sendAgain({ deliveryId });
  expect(await db("attempts").where({ delivery_id: ids[0] }).orderBy("number").pluck("timing")).toEqual([
    null,
    "1 2",
  ]);
  expect(await Promise.all(ids.map(recorded))).toEqual([
    [2, 2, both],
    [2, 2, both],
    [0, 0, []],
  ]);
  // Once it has arrived, many of them are sent again like one.
  const [first = ""] = ids;
  await changeDelivery(db, first, { state: "delivered", attempts: 3, tried: [{ status: 200 }] });
  const sent = await deliveries.sendAgainMany({ webhookId, states: [DELIVERED] });
  expect(sent).toMatchObject({ sentAgain: 1 });
  expect(await recorded(first)).toEqual([3, 3, [...both, [3, 200]]]);
});

test.each<[string, Partial<Stored>, string]>([
  ["pending", { state: "pending", attempts: 0 }, "is pending; it can be sent again once"],
  ["delivering", { state: "delivering", attempts: 0 }, "is delivering; it can be sent again once"],
  ["retrying", { state: "retrying", attempts: 1 }, "is retrying; it can be sent again once"],
  ["of 30,000 attempts", { attempts: 30_000 }, "has had 30000 attempts"],
])("a delivery that is %s is not sent again", async (_, columns, message) => {
  const [deliveryId = ""] = await store(1, columns);
  await expectRefused(deliveries.sendAgain({ deliveryId }), Code.FailedPrecondition, message);
  expect(await row(deliveryId)).toMatchObject({ state: columns.state ?? "failed", round_start: 0 });
});

test("of several calls at once one starts a round and the others are refused", async () => {
  const [deliveryId = ""] = await store(1);
  const calls = await Promise.all([1, 2, 3].map(() => failure(deliveries.sendAgain({ deliveryId }))));
  const refused = Code.FailedPrecondition;
  expect(calls.map((error) => error?.code ?? "sent").sort()).toEqual([refused, refused, "sent"]);
});

test("many are sent again call by call, newest first, each once, and only those the filter finds", async () => {
  const webhookId = await api.register();
  const failed = await store(25, { webhookId });
  const spared = [...(await store(3, { webhookId, state: "delivered" })), ...(await store(3))];
  const pages = await pagesOf(async (pageToken) => {
    const page = await deliveries.sendAgainMany({ webhookId, pageSize: 10, pageToken });
    // One that fails again meanwhile is not taken up by the calls that follow.
    await changeDelivery(db, failed[24] as string, { state: "failed" });
    return page;
  });
  expect(pages.map(({ sentAgain, skipped }) => [sentAgain, skipped])).toEqual([
    [10, 0],
    [10, 0],
    [5, 0],
  ]);
  const states = await db("all_deliveries").whereIn("id", failed).select("state", "round_start");
  expect(states.filter(({ state }) => state === "pending")).toHaveLength(24);
  expect(states.every(({ round_start }) => round_start === 4)).toBe(true);
  for (const id of spared) expect((await row(id)).round_start).toBe(0);
});

test("many are chosen by state and time, and skipped if their webhook is deleted", async () => {
  const [webhookId, gone] = [await api.register(), await api.register()];
  const of = { webhookId, state: "cancelled" as const };
  const [early = ""] = await store(1, of);
  const { created } = await row(early);
  const to = timestampFromDate(new Date(created.getTime() + 1));
  const [late = ""] = await store(1, { ...of, created: new Date(created.getTime() + 1_000) });
  await store(2, { ...of, webhookId: gone });
  await api.webhooks.deleteWebhook({ webhookId: gone });
  const states = [CANCELLED];
  expect(await deliveries.sendAgainMany({ webhookId, states, to })).toMatchObject({ sentAgain: 1 });
  expect([(await row(early)).state, (await row(late)).state]).toEqual(["pending", "cancelled"]);
  const ofGone = await deliveries.sendAgainMany({ webhookId: gone, states });
  expect(ofGone).toMatchObject({ sentAgain: 0, skipped: 2 });
});

test("more than one step's worth goes in one call", async () => {
  const webhookId = await api.register();
  await store(1_200, { webhookId });
  const send = () =>
    sendManyAgain(db, "everything", { webhookId, states: ["failed"] }, { limit: 1_100, retentionDays: 30 });
  expect(await send()).toMatchObject({ sent: 1_100, skipped: 0 });
  expect(await send()).toEqual({ sent: 100, skipped: 0, next: null });
});

test("states that are under way and a page back are refused", async () => {
  await store(1);
  const { previousPageToken } = await deliveries.listDeliveries({ states: [FAILED] });
  await expectRefused(deliveries.sendAgainMany({ states: [PENDING] }), Code.InvalidArgument, "states");
  const back = deliveries.sendAgainMany({ pageToken: previousPageToken });
  await expectRefused(back, Code.InvalidArgument, "page_token");
});

test("a delivery older than RETENTION_DAYS, whose payload was erased or whose webhook is deleted is not sent again, and the error says why", async () => {
  const [webhookId, deleted] = [await api.register(), await api.register()];
  const [old = ""] = await store(1, { webhookId, created: new Date(Date.now() - 31 * 86_400_000) });
  const [erased = ""] = await store(1, { webhookId });
  const [gone = ""] = await store(1, { webhookId: deleted });
  await api.webhooks.deleteWebhook({ webhookId: deleted });
  const { event_id: id } = await row(erased);
  await db.raw(
    `insert into events (id, api_key_id, idempotency_key, process, user_id, occurred, recipients, payload)
      values (:id, gen_random_uuid(), 'erased', 1, 'u', now(), 1, null)`,
    { id },
  );
  for (const [deliveryId, message] of [
    [old, /is older than 30 days \(RETENTION_DAYS\) and would expire immediately; publish the event again/],
    [erased, /the payload of delivery .* was erased; publish the event again with its data/],
    [gone, /no longer exists/],
  ] as const) {
    await expectRefused(deliveries.sendAgain({ deliveryId }), Code.FailedPrecondition, message);
    expect(await row(deliveryId)).toMatchObject({ state: "failed", reason: "interrupted" });
  }
  expect(await deliveries.sendAgainMany({ webhookId })).toMatchObject({ sentAgain: 0, skipped: 2 });
});
