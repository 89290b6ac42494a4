import { afterAll, beforeAll, expect, test } from "vitest";
import { ONLY, startTestApi, type TestApi } from "../support/test-api.ts";

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi();
});
afterAll(() => api.stop());

const EVENT_ID = "018f0000-0000-7000-8000-000000000000";
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

test("a deleted webhook's undelivered deliveries are cancelled, and its finished ones stay", async () => {
  const { db } = api.context;
  const { Data } = (await create(freshUrl())).envelope;
  const states = ["pending", "delivering", "retrying", "delivered", "failed"];
  await db("deliveries").insert(
    states.map((state) => ({
      event_id: EVENT_ID,
      webhook_id: Data.Id,
      state,
      run_id: state === "delivering" ? 1 : null,
      claim_activity: state === "delivering" ? EVENT_ID : null,
      claim_attempt: state === "delivering" ? 1 : null,
    })),
  );
  await api.rest("DELETE", "/api/webhook", {
    query: { webhookId: String(Data.Id) },
    key: (await api.key({ permissions: ONLY.write })).secret,
  });
  const rows = await db("deliveries").where("webhook_id", Data.Id).orderBy("id");
  expect(rows.map((row) => row.state)).toEqual([
    "cancelled",
    "cancelled",
    "cancelled",
    "delivered",
    "failed",
  ]);
  expect(
    rows.slice(0, 3).every((row) => row.finished instanceof Date && row.reason === "webhook deleted"),
  ).toBe(true);
  // An attempt in flight is still recorded against its claim.
  expect(rows[1]).toMatchObject({ claim_activity: EVENT_ID, claim_attempt: 1 });
});

test("a delete that PostgreSQL chose in a deadlock is tried again", async () => {
  const { db } = api.context;
  const { Data } = (await create(freshUrl())).envelope;
  const [first, second] = (
    await db("deliveries")
      .insert([1, 2].map(() => ({ event_id: EVENT_ID, webhook_id: Data.Id })))
      .returning("id")
  ).map((row) => row.id);
  const other = await db.transaction();
  await other.raw("set local deadlock_timeout = '1min'");
  await other("deliveries").where("id", second).forUpdate();
  const deleted = api.rest("DELETE", "/api/webhook", { query: { webhookId: String(Data.Id) } });
  const waiting =
    "select count(*)::int as n from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
  await expect.poll(async () => (await db.raw(waiting)).rows[0].n).toBe(1);
  // Now each waits for the other, and the delete, which looks first, gives way.
  await other("deliveries").where("id", first).forUpdate();
  await other.commit();
  expect((await deleted).envelope.Success).toBe(true);
  expect(await db("deliveries").where({ webhook_id: Data.Id, state: "cancelled" })).toHaveLength(2);
});
