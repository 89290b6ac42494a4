import { afterAll, beforeAll, expect, test } from "vitest";
import { claimPending } from "../../../src/db/queue/claims.ts";
import { recordAttempts } from "../../../src/db/queue/results.ts";
import { cancelOfDeleted } from "../../../src/db/webhooks/webhooks.ts";
import { ALL, freshClaimant, result, SPACING } from "../../db/queue/queue.ts";
import { waitingQueries } from "../../support/grpc-calls.ts";
import { storeDeliveries } from "../../support/stored-deliveries.ts";
import { ONLY, startTestApi, type TestApi } from "../../support/test-api.ts";

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi();
});
afterAll(() => api.stop());

let paths = 0;
const freshUrl = () => `https://receiver.example/delete/${++paths}`;
const create = (url: string, process = 1, key = api.adminKey) =>
  api.rest("POST", "/api/webhook", { json: { process, url }, key });

test("§4.3: DELETE /api/webhook takes webhookId and answers the envelope", async () => {
  const { Data } = (await create(freshUrl())).envelope;
  const { status, envelope } = await api.rest("DELETE", "/api/webhook", { json: { webhookId: Data.Id } });
  expect(status).toBe(200);
  expect(Object.keys(envelope)).toEqual(["Success", "Data", "Warnings"]);
});

test("§4.3.1: the Id from the list deletes its webhook, which is answered and gone from the list", async () => {
  const { Data: made } = (await create(freshUrl())).envelope;
  const { envelope: before } = await api.rest("GET", "/api/webhook/list");
  const listed = before.Data.find((each: { Url: string }) => each.Url === made.Url);
  const deleted = await api.rest("DELETE", "/api/webhook", { query: { webhookId: String(listed.Id) } });
  expect(deleted.status).toBe(200);
  expect(deleted.envelope).toMatchObject({ Success: true, Data: { Id: made.Id, Url: made.Url } });
  const { envelope: after } = await api.rest("GET", "/api/webhook/list");
  expect(after.Data.map((each: { Id: number }) => each.Id)).not.toContain(made.Id);
});

test("§4.3.2: a webhookId that does not exist has Success false and a warning", async () => {
  for (const webhookId of ["4711", "-1", "9007199254740993"]) {
    const { status, envelope } = await api.rest("DELETE", "/api/webhook", { query: { webhookId } });
    expect(status).toBe(400);
    expect(envelope).toEqual({ Success: false, Data: null, Warnings: [expect.stringContaining(webhookId)] });
  }
});

test("§4.3.2: of many deletes of one webhook at once, one succeeds", async () => {
  const { Data } = (await create(freshUrl())).envelope;
  const answers = await Promise.all(
    Array.from({ length: 10 }, () =>
      api.rest("DELETE", "/api/webhook", { query: { webhookId: String(Data.Id) } }),
    ),
  );
  expect(answers.filter((answer) => answer.envelope.Success)).toHaveLength(1);
});

test("§7.3: deleting a nonexistent webhook is a failure with status 400", async () => {
  const { status, envelope } = await api.rest("DELETE", "/api/webhook", { query: { webhookId: "4711" } });
  expect([status, envelope.Success, envelope.Data]).toEqual([400, false, null]);
});

const statesOf = async (webhookId: number) =>
  api.context.db("all_deliveries").where("webhook_id", webhookId).orderBy("id").pluck("state");

test("a deleted webhook's undelivered deliveries are cancelled, and its finished ones stay", async () => {
  const { db } = api.context;
  const { Data } = (await create(freshUrl())).envelope;
  const webhookId = Data.Id as number;
  const inFlight = await storeDeliveries(db, [{ webhookId }, { webhookId }]);
  const { deliveries: claimed } = await claimPending(db, await freshClaimant(db), ALL);
  const states = ["pending", "retrying", "delivered", "failed"] as const;
  const ids = await storeDeliveries(
    db,
    states.map((each) => ({ webhookId, state: each })),
  );
  await api.rest("DELETE", "/api/webhook", {
    query: { webhookId: String(webhookId) },
    key: (await api.key({ permissions: ONLY.write })).secret,
  });
  const rows = await db("all_deliveries").whereIn("id", ids);
  const now = ids.map((id) => rows.find((row) => row.id === id));
  expect(now.map((row) => row.state)).toEqual(["cancelled", "cancelled", "delivered", "failed"]);
  for (const row of now.slice(0, 2)) {
    expect([row.reason, row.finished]).toEqual(["webhook deleted", expect.any(Date)]);
  }

  // An attempt in flight is still recorded against its claim; it is the last one, whatever its result.
  expect(claimed.map(({ id }) => id).sort()).toEqual(inFlight.toSorted());
  await recordAttempts(
    db,
    claimed.map((delivery, index) => result(delivery, [200, 500][index] as number)),
    SPACING,
  );
  const recorded = await db("deliveries").whereIn("id", inFlight).orderBy("status");
  expect(
    recorded.map(({ outcome, attempts, status, reason }) => [outcome, attempts, status, reason]),
  ).toEqual([
    ["delivered", 1, 200, null],
    ["cancelled", 1, 500, "webhook deleted"],
  ]);
});

test("of a deleted webhook with many deliveries some are cancelled at once, the rest soon after", async () => {
  const { db } = api.context;
  const { Data } = (await create(freshUrl())).envelope;
  const webhookId = Data.Id as number;
  await storeDeliveries(
    db,
    [...Array(1_700).fill("pending"), ...Array(1_200).fill("retrying")].map((each) => ({
      webhookId,
      state: each,
    })),
  );
  const { envelope } = await api.rest("DELETE", "/api/webhook", { query: { webhookId: String(webhookId) } });
  expect(envelope).toMatchObject({ Success: true, Warnings: [] });
  const counts = async () => Object.groupBy(await statesOf(webhookId), (each: string) => each);
  const lengths = async () => {
    const { pending, retrying, cancelled } = await counts();
    return [pending?.length ?? 0, retrying?.length ?? 0, cancelled?.length ?? 0];
  };
  expect(await lengths()).toEqual([1_200, 700, 1_000]);
  const steps: number[] = [];
  do steps.push(await cancelOfDeleted(db));
  while (steps.at(-1));
  expect(steps).toEqual([1_700, 200, 0]);
  expect(await lengths()).toEqual([0, 0, 2_900]);
});

test("a delete waits for no delivery that is being changed; it is cancelled soon after", async () => {
  const { db } = api.context;
  const { Data } = (await create(freshUrl())).envelope;
  const webhookId = Data.Id as number;
  const [busy = ""] = await storeDeliveries(db, [{ webhookId }, { webhookId }]);
  const other = await db.transaction();
  await other("queue").where("id", busy).forUpdate();
  const { envelope } = await api.rest("DELETE", "/api/webhook", { query: { webhookId: String(webhookId) } });
  expect(envelope.Success).toBe(true);
  expect((await statesOf(webhookId)).toSorted()).toEqual(["cancelled", "pending"]);
  await other.commit();
  expect(await cancelOfDeleted(db)).toBe(1);
  expect(await statesOf(webhookId)).toEqual(["cancelled", "cancelled"]);
});

test("a delete that PostgreSQL chose in a deadlock is tried again", async () => {
  const { db } = api.context;
  const { Data } = (await create(freshUrl())).envelope;
  const webhookId = Data.Id as number;
  await storeDeliveries(db, [{ webhookId }, { webhookId }]);
  const other = await db.transaction();
  await other.raw("set local deadlock_timeout = '1min'");
  await other("processes").where("process", 1).forUpdate();
  const deleted = api.rest("DELETE", "/api/webhook", { query: { webhookId: String(webhookId) } });
  await expect.poll(() => waitingQueries(api)).toBe(1);
  // Now each waits for the other, and the delete, which looks first, gives way.
  await other("webhooks").where("id", webhookId).forUpdate();
  await other.commit();
  expect((await deleted).envelope.Success).toBe(true);
  expect(await statesOf(webhookId)).toEqual(["cancelled", "cancelled"]);
});
