import { randomUUID } from "node:crypto";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { type Client, Code, createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { DeliveryService, DeliveryState } from "../../../../gen/webhook/v1/delivery_pb.ts";
import type { WebhookProcess } from "../../../../gen/webhook/v1/event_pb.ts";
import { WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { sendManyAgain } from "../../../../src/db/deliveries/send-again.ts";
import { type ClaimedDelivery, claimGroup, claimPending } from "../../../../src/db/queue/claims.ts";
import { recordAttempts } from "../../../../src/db/queue/results.ts";
import { assignGroups } from "../../../../src/db/queue/retry-groups.ts";
import { ALL, freshClaimant, NO_WAIT, result } from "../../../db/queue/queue.ts";
import { grpc } from "../../../support/clients.ts";
import { failure } from "../../../support/failure.ts";
import { changeDelivery, type Stored, storeDeliveries } from "../../../support/stored-deliveries.ts";
import { ONLY, startTestApi, type TestApi } from "../../../support/test-api.ts";

let api: TestApi;
let deliveries: Client<typeof DeliveryService>;
beforeAll(async () => {
  api = await startTestApi();
  deliveries = createClient(DeliveryService, grpc(api));
});
afterAll(() => api.stop());

/** Stores deliveries of a webhook as they are after their end; answers their ids, oldest first. */
async function store(webhookId: bigint, count: number, columns: Partial<Stored>): Promise<string[]> {
  const ids = await storeDeliveries(
    api.context.db,
    Array.from({ length: count }, () => ({ webhookId, ...columns })),
  );
  return ids.sort();
}

const FAILED = { state: "failed", attempts: 4, reason: "interrupted" } as const;
const row = (id: string) => api.context.db("all_deliveries").where("id", id).first();

test("a final delivery sent again is pending, with a new round that begins after its attempts", async () => {
  const webhookId = await api.register();
  for (const state of ["delivered", "failed", "cancelled"] as const) {
    const [deliveryId = ""] = await store(webhookId, 1, { ...FAILED, state, runId: 7 });
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

/** Gives a pending delivery a round: an attempt for each of the answers, as the dispatch records them. */
async function attempt(deliveryId: string, statuses: readonly number[]): Promise<void> {
  const { db } = api.context;
  const claimant = await freshClaimant(db);
  const claimed = (deliveries: readonly ClaimedDelivery[]) => {
    const found = deliveries.find(({ id }) => id === deliveryId);
    if (!found) throw new Error(`delivery ${deliveryId} cannot be claimed`);
    return found;
  };
  for (const [before, status] of statuses.entries()) {
    if (before > 0) await assignGroups(db, claimant.runId);
    const { deliveries } =
      before === 0
        ? await claimPending(db, claimant, ALL)
        : await claimGroup(db, claimant, { ...ALL, group: 1 });
    await recordAttempts(db, [result(claimed(deliveries), status)], NO_WAIT);
  }
}

describe("a delivery that is sent again keeps every attempt that was recorded, with its number,", () => {
  /** Numbers and answers, as callers are told; with how many are kept apart from the delivery's own row. */
  async function recorded(deliveryId: string) {
    const { delivery, attempts } = await deliveries.getDelivery({ deliveryId });
    const { db } = api.context;
    expect(await db("all_attempts").where("delivery_id", deliveryId)).toHaveLength(attempts.length);
    return {
      state: delivery?.state,
      counts: [delivery?.attemptCount, delivery?.roundStart],
      attempts: attempts.map(({ number, status }) => [number, status]),
      apart: (await db("attempts").where("delivery_id", deliveryId)).length,
    };
  }

  test("through failed and delivered rounds", async () => {
    const webhooks = createClient(WebhookService, grpc(api));
    const webhookId = await api.register();
    const { deliveryId } = await webhooks.sendTestEvent({ webhookId });
    await attempt(deliveryId, [500, 501, 502, 503]);
    const first = [
      [1, 500],
      [2, 501],
      [3, 502],
      [4, 503],
    ];
    expect(await recorded(deliveryId)).toEqual({
      state: DeliveryState.FAILED,
      counts: [4, 0],
      attempts: first,
      apart: 3,
    });
    await deliveries.sendAgain({ deliveryId });
    expect(await recorded(deliveryId)).toEqual({
      state: DeliveryState.PENDING,
      counts: [4, 4],
      attempts: first,
      apart: 4,
    });
    await attempt(deliveryId, [504, 200]);
    const second = [...first, [5, 504], [6, 200]];
    expect(await recorded(deliveryId)).toEqual({
      state: DeliveryState.DELIVERED,
      counts: [6, 4],
      attempts: second,
      apart: 5,
    });
    const states = [DeliveryState.DELIVERED];
    expect(await deliveries.sendAgainMany({ webhookId, states })).toMatchObject({ sentAgain: 1 });
    expect(await recorded(deliveryId)).toMatchObject({ counts: [6, 6], attempts: second, apart: 6 });
    await attempt(deliveryId, [505, 506, 507, 508]);
    expect(await recorded(deliveryId)).toEqual({
      state: DeliveryState.FAILED,
      counts: [10, 6],
      attempts: [...second, [7, 505], [8, 506], [9, 507], [10, 508]],
      apart: 9,
    });
  });

  test("after an end without an attempt, which makes none up", async () => {
    const webhookId = await api.register();
    const tried = [{ status: 500 }, { status: 502 }];
    const [deliveryId = "", untried = ""] = await storeDeliveries(api.context.db, [
      { webhookId, state: "failed", reason: "expired", tried, endedUntried: true },
      { webhookId, state: "failed", reason: "interrupted" },
    ]);
    for (const id of [deliveryId, untried]) await deliveries.sendAgain({ deliveryId: id });
    const kept = [
      [1, 500],
      [2, 502],
    ];
    expect(await recorded(deliveryId)).toMatchObject({ counts: [2, 2], attempts: kept, apart: 2 });
    expect(await recorded(untried)).toMatchObject({ counts: [0, 0], attempts: [], apart: 0 });
    await attempt(deliveryId, [200]);
    expect(await recorded(deliveryId)).toMatchObject({
      counts: [3, 2],
      attempts: [...kept, [3, 200]],
      apart: 2,
    });
  });
});

test("a delivery that has had 30,000 attempts is not sent again", async () => {
  const webhookId = await api.register();
  const [most = "", fewer = ""] = await storeDeliveries(api.context.db, [
    { ...FAILED, webhookId, attempts: 30_000 },
    { ...FAILED, webhookId, attempts: 29_999 },
  ]);
  const refused = await failure(deliveries.sendAgain({ deliveryId: most }));
  expect([refused?.code, refused?.rawMessage]).toEqual([
    Code.FailedPrecondition,
    expect.stringContaining("has had 30000 attempts"),
  ]);
  expect((await deliveries.sendAgain({ deliveryId: fewer })).delivery?.state).toBe(DeliveryState.PENDING);
});

test("a delivery that is under way is not sent again", async () => {
  const webhookId = await api.register();
  for (const state of ["pending", "delivering", "retrying"] as const) {
    const [deliveryId = ""] = await store(webhookId, 1, { state, attempts: state === "retrying" ? 1 : 0 });
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
  expect(refused?.rawMessage).toContain("no longer exists");
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
    await changeDelivery(api.context.db, failed[24] as string, { state: "failed" });
  } while (pageToken !== "");
  expect(counts).toEqual([10, 10, 5]);
  const states = await api.context.db("all_deliveries").whereIn("id", failed).select("state", "round_start");
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
  expect(
    await sendManyAgain(api.context.db, "everything", filter, { limit: 1_100, retentionDays: 30 }),
  ).toMatchObject({
    sent: 1_100,
    skipped: 0,
  });
  expect(
    await sendManyAgain(api.context.db, "everything", filter, { limit: 1_100, retentionDays: 30 }),
  ).toEqual({
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

test("a delivery older than RETENTION_DAYS, or whose payload was erased, is not sent again, and the error says why", async () => {
  const webhookId = await api.register();
  const [old = ""] = await store(webhookId, 1, {
    ...FAILED,
    created: new Date(Date.now() - 31 * 86_400_000),
  });
  const [erased = ""] = await store(webhookId, 1, FAILED);
  const { event_id } = await row(erased);
  await api.context.db("events").insert({
    id: event_id,
    api_key_id: randomUUID(),
    idempotency_key: "erased",
    process: 1,
    user_id: "u",
    occurred: new Date(),
    recipients: 1,
    payload: null,
  });

  const tooOld = await failure(deliveries.sendAgain({ deliveryId: old }));
  expect(tooOld?.code).toBe(Code.FailedPrecondition);
  expect(tooOld?.rawMessage).toMatch(
    /is older than 30 days \(RETENTION_DAYS\) and would expire immediately; publish the event again/,
  );
  const gone = await failure(deliveries.sendAgain({ deliveryId: erased }));
  expect(gone?.code).toBe(Code.FailedPrecondition);
  expect(gone?.rawMessage).toMatch(
    /the payload of delivery .* was erased; publish the event again with its data/,
  );
  expect(await deliveries.sendAgainMany({ webhookId })).toMatchObject({ sentAgain: 0, skipped: 2 });
  for (const id of [old, erased]) expect((await row(id)).state).toBe("failed");
});
