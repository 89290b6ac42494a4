import { randomUUID } from "node:crypto";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { type Client, Code, createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, expect, test } from "vitest";
import { DeliveryService, DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import type { WebhookProcess } from "../../gen/webhook/v1/event_pb.ts";
import { sendManyAgain } from "../../src/db/send-again.ts";
import { grpc } from "../support/clients.ts";
import { failure } from "../support/failure.ts";
import { ONLY, startTestApi, type TestApi } from "../support/test-api.ts";

let api: TestApi;
let deliveries: Client<typeof DeliveryService>;
beforeAll(async () => {
  api = await startTestApi();
  deliveries = createClient(DeliveryService, grpc(api));
});
afterAll(() => api.stop());

/** Stores deliveries of a webhook as they are after their end; answers their ids, oldest first. */
async function store(webhookId: bigint, count: number, columns: Record<string, unknown>): Promise<string[]> {
  const made = await api.context
    .db("deliveries")
    .insert(
      Array.from({ length: count }, () => ({
        event_id: randomUUID(),
        webhook_id: String(webhookId),
        ...columns,
      })),
    )
    .returning("id");
  return made.map(({ id }) => id).sort();
}

const FAILED = { state: "failed", attempts: 4, finished: new Date(), reason: "interrupted" };
const row = (id: string) => api.context.db("deliveries").where("id", id).first();

test("a final delivery sent again is pending, with a new round that begins after its attempts", async () => {
  const webhookId = await api.register();
  for (const state of ["delivered", "failed", "cancelled"]) {
    const [deliveryId = ""] = await store(webhookId, 1, { ...FAILED, state, claims: 3, run_id: 7 });
    const { delivery } = await deliveries.sendAgain({ deliveryId });
    expect(delivery).toMatchObject({
      id: deliveryId,
      state: DeliveryState.PENDING,
      attemptCount: 4,
      roundStart: 4,
    });
    expect([delivery?.reason, delivery?.finished, delivery?.nextAttempt]).toEqual([
      undefined,
      undefined,
      undefined,
    ]);
    expect(await row(deliveryId)).toMatchObject({ round_start: 4, claims: 0, run_id: null });
  }
});

test("a delivery that is under way is not sent again", async () => {
  const webhookId = await api.register();
  for (const state of ["pending", "delivering", "retrying"]) {
    const [deliveryId = ""] = await store(webhookId, 1, { state, attempts: 1 });
    const refused = await failure(deliveries.sendAgain({ deliveryId }));
    expect(refused?.code).toBe(Code.FailedPrecondition);
    expect(refused?.rawMessage).toContain(`is ${state}; it can be sent again once`);
    expect(await row(deliveryId)).toMatchObject({ state, round_start: 0 });
  }
});

test("of two calls at once one starts a round and the other is refused", async () => {
  const [deliveryId = ""] = await store(await api.register(), 1, FAILED);
  const calls = await Promise.all([1, 2, 3].map(() => failure(deliveries.sendAgain({ deliveryId }))));
  expect(calls.filter((error) => error === undefined)).toHaveLength(1);
  expect(calls.filter((error) => error?.code === Code.FailedPrecondition)).toHaveLength(2);
});

test("a delivery whose webhook or key is gone is not sent again", async () => {
  const webhookId = await api.register();
  const [deliveryId = ""] = await store(webhookId, 1, FAILED);
  await api.rest("DELETE", "/api/webhook", { query: { webhookId: String(webhookId) } });
  const refused = await failure(deliveries.sendAgain({ deliveryId }));
  expect(refused?.code).toBe(Code.FailedPrecondition);
  expect(refused?.rawMessage).toContain("is gone");
  expect(await row(deliveryId)).toMatchObject({ state: "failed", reason: "interrupted" });
});

test("unknown deliveries are NOT_FOUND, and what is no id is INVALID_ARGUMENT", async () => {
  expect((await failure(deliveries.sendAgain({ deliveryId: randomUUID() })))?.code).toBe(Code.NotFound);
  expect((await failure(deliveries.sendAgain({ deliveryId: "x" })))?.code).toBe(Code.InvalidArgument);
  expect((await failure(deliveries.sendAgain({})))?.code).toBe(Code.InvalidArgument);
});

test("many are sent again call by call, newest first, each once, and only those the filter finds", async () => {
  const [webhookId, other] = [await api.register(), await api.register()];
  const failed = await store(webhookId, 25, FAILED);
  const spared = [
    ...(await store(webhookId, 3, { ...FAILED, state: "delivered" })),
    ...(await store(other, 3, FAILED)),
  ];
  const counts: number[] = [];
  let pageToken = "";
  do {
    const answer = await deliveries.sendAgainMany({ webhookId, pageSize: 10, pageToken });
    counts.push(answer.sentAgain);
    expect(answer.skipped).toBe(0);
    pageToken = answer.nextPageToken;
    // One that fails again meanwhile is not taken up by the calls that follow.
    await api.context.db("deliveries").where("id", failed[24]).update({ state: "failed" });
  } while (pageToken !== "");
  expect(counts).toEqual([10, 10, 5]);
  const states = await api.context.db("deliveries").whereIn("id", failed).select("state", "round_start");
  expect(states.filter(({ state }) => state === "pending")).toHaveLength(24);
  expect(states.every(({ round_start }) => round_start === 4)).toBe(true);
  for (const id of spared) expect((await row(id)).round_start).toBe(0);
});

test("many are chosen by state and time, and skipped where their webhook is gone", async () => {
  const [webhookId, gone] = [await api.register(), await api.register()];
  const [early = ""] = await store(webhookId, 1, { ...FAILED, state: "cancelled" });
  const { created } = await row(early);
  const boundary = timestampFromDate(new Date(created.getTime() + 1));
  const [late = ""] = await store(webhookId, 1, {
    ...FAILED,
    state: "cancelled",
    created: new Date(Date.now() + 1_000),
  });
  await store(gone, 2, { ...FAILED, state: "cancelled" });
  await api.rest("DELETE", "/api/webhook", { query: { webhookId: String(gone) } });
  const states = [DeliveryState.CANCELLED];
  expect(await deliveries.sendAgainMany({ webhookId, states, to: boundary })).toMatchObject({ sentAgain: 1 });
  expect([(await row(early)).state, (await row(late)).state]).toEqual(["pending", "cancelled"]);
  expect(await deliveries.sendAgainMany({ webhookId: gone, states })).toMatchObject({
    sentAgain: 0,
    skipped: 2,
  });
});

test("more than one step's worth goes in one call", async () => {
  const webhookId = await api.register();
  await store(webhookId, 1_200, FAILED);
  const filter = { webhookId, states: ["failed" as const] };
  expect(await sendManyAgain(api.context.db, "everything", filter, 1_100)).toMatchObject({
    sent: 1_100,
    skipped: 0,
  });
  expect(await sendManyAgain(api.context.db, "everything", filter, 1_100)).toEqual({
    sent: 100,
    skipped: 0,
    next: null,
  });
});

test("states that are under way, too many at once and a page back are INVALID_ARGUMENT", async () => {
  await store(await api.register(), 1, FAILED);
  const { previousPageToken } = await deliveries.listDeliveries({ states: [DeliveryState.FAILED] });
  const refused = await Promise.all([
    failure(deliveries.sendAgainMany({ states: [DeliveryState.PENDING] })),
    failure(deliveries.sendAgainMany({ pageSize: 10_001 })),
    failure(deliveries.sendAgainMany({ pageToken: "x" })),
    failure(deliveries.sendAgainMany({ pageToken: previousPageToken })),
    failure(deliveries.sendAgainMany({ process: 99 as WebhookProcess })),
  ]);
  expect(refused.map((error) => error?.code)).toEqual(refused.map(() => Code.InvalidArgument));
});

test("sending again takes Write_Administrative_Data", async () => {
  const { secret } = await api.key({ permissions: [...ONLY.read, ...ONLY.publish, ...ONLY.manage] });
  const reader = createClient(DeliveryService, grpc(api, secret));
  const [deliveryId = ""] = await store(await api.register(), 1, FAILED);
  const refused = await Promise.all([
    failure(reader.sendAgain({ deliveryId })),
    failure(reader.sendAgainMany({})),
  ]);
  expect(refused.map((error) => error?.code)).toEqual([Code.PermissionDenied, Code.PermissionDenied]);
  const writer = createClient(
    DeliveryService,
    grpc(api, (await api.key({ permissions: ONLY.write })).secret),
  );
  await writer.sendAgain({ deliveryId });
});
