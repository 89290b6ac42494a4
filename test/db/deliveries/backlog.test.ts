import { randomUUID } from "node:crypto";
import { expect, test } from "vitest";
import { readBacklog } from "../../../src/db/deliveries/backlog.ts";
import { sendAgain } from "../../../src/db/deliveries/send-again.ts";
import { ensurePartitions, firstIdOf, NIL_ID } from "../../../src/db/partitions.ts";
import { claimPending } from "../../../src/db/queue/claims.ts";
import { recordAttempts } from "../../../src/db/queue/results.ts";
import { queueMissed } from "../../../src/db/replays/backfill.ts";
import type { RunningReplay } from "../../../src/db/replays/running.ts";
import { idAt, storeDeliveries } from "../../support/stored-deliveries.ts";
import { freshClaimant, NO_WAIT, openQueueDatabase, queue, result } from "../queue/queue.ts";

const MINUTE_MS = 60_000;
const YESTERDAY = new Date(Date.now() - 24 * 60 * MINUTE_MS);

const db = await openQueueDatabase();

/** Moves the deliveries of a webhook back in time, as if they had been published so long ago. */
async function age(webhookId: bigint, ms: number): Promise<void> {
  await db.raw(
    `update queue set id = encode(overlay(uuid_send(id) placing
        substring(int8send((extract(epoch from now()) * 1000)::bigint - ?::bigint) from 3) from 1 for 6), 'hex')::uuid
      where webhook_id = ?`,
    [ms, String(webhookId)],
  );
}

const read = (options: Partial<Parameters<typeof readBacklog>[1]> = {}) =>
  readBacklog(db, { after: 0n, ...options });

/** The minutes of the oldest sendable delivery. */
const oldestMinutes = async () => Math.floor((await read()).oldestSendableS / 60);

async function oldWebhook(minutes: number): Promise<bigint> {
  const webhookId = await queue(db, 2);
  await age(webhookId, minutes * MINUTE_MS);
  return webhookId;
}

const set = (webhookId: bigint, values: Record<string, unknown>) =>
  db("webhooks").where("id", String(webhookId)).update(values);

test("an empty queue has no backlog", async () => {
  expect(await read()).toEqual({
    pending: 0,
    retrying: 0,
    overdue: 0,
    oldestSendableS: 0,
    next: null,
    lastRunS: null,
  });
});

test("the oldest sendable delivery is that of no webhook that is paused, deleted, rate limited or failing", async () => {
  await oldWebhook(5);
  expect(await oldestMinutes()).toBe(5);
  await set(await oldWebhook(10), { paused: new Date() });
  await set(await oldWebhook(11), { deleted: new Date() });
  await set(await oldWebhook(12), { rate_limit: 1 });
  expect(await oldestMinutes()).toBe(5);
  const failing = await oldWebhook(13);
  expect(await oldestMinutes()).toBe(13);
  await db("retries").insert({
    id: db.raw("gen_random_uuid()"),
    event_id: db.raw("gen_random_uuid()"),
    webhook_id: String(failing),
    attempts: 1,
    round_start: 0,
    due: new Date(Date.now() + MINUTE_MS),
  });
  expect(await oldestMinutes()).toBe(5);
  expect(await read()).toMatchObject({ pending: 10, retrying: 1 });
});

test("a delivery that a worker has claimed does not wait; one of a worker whose lease ended does", async () => {
  await oldWebhook(5);
  const claimant = await freshClaimant(db);
  await claimPending(db, claimant, { limit: 10, after: 0n, excluded: [] });
  expect(await oldestMinutes()).toBe(0);
  await db("workers").delete();
  expect(await oldestMinutes()).toBe(5);
});

test.each([
  ["delivered", { state: "delivered" as const, attempts: 1 }],
  ["failed without an attempt", { state: "failed" as const, reason: "queue full" }],
])("a delivery of yesterday that %s and is sent again waits from then on", async (_name, ended) => {
  const webhookId = await queue(db, 0);
  const [id] = await storeDeliveries(db, [{ webhookId, created: YESTERDAY, ...ended }]);
  await sendAgain(db, "everything", id as string, 30);
  expect(await read()).toMatchObject({ pending: 1 });
  expect(await oldestMinutes()).toBe(0);
  await db("queue").update({ queued: new Date(Date.now() - 3 * MINUTE_MS) });
  expect(await oldestMinutes()).toBe(3);
});

test("an event of yesterday that a replay delivers to a new webhook waits from then on", async () => {
  const webhookId = await queue(db, 0);
  await ensurePartitions(db, 30, [YESTERDAY]);
  await db("events").insert({
    id: idAt(YESTERDAY),
    api_key_id: randomUUID(),
    idempotency_key: "k",
    process: 1,
    user_id: "u",
    occurred: YESTERDAY,
    payload: "{}",
  });
  const replay = { toId: firstIdOf(new Date()) } as RunningReplay;
  const limits = { retentionDays: 30, settledMs: 0 };
  expect(await queueMissed(db, replay, webhookId, NIL_ID, 10, limits)).toMatchObject({ queued: 1 });
  expect(await oldestMinutes()).toBe(0);
});

test("an event that is not fanned out yet waits", async () => {
  await db.raw(
    `insert into fan_out (event_id, process, revision, remaining)
      select encode(overlay(uuid_send(new_event_id()) placing
        substring(int8send((extract(epoch from now()) * 1000)::bigint - 240000) from 3) from 1 for 6), 'hex')::uuid, 1, 1, 5`,
  );
  expect(await oldestMinutes()).toBe(4);
});

test("a retry is overdue a minute after it was due, unless it is claimed or its webhook is paused", async () => {
  const webhookId = await queue(db, 3);
  const claimant = await freshClaimant(db);
  const { deliveries } = await claimPending(db, claimant, { limit: 10, after: 0n, excluded: [] });
  await recordAttempts(
    db,
    deliveries.map((delivery) => result(delivery, 500)),
    NO_WAIT,
  );
  expect(await read()).toMatchObject({ retrying: 3, overdue: 0 });
  await db("retries").update({ due: new Date(Date.now() - 2 * MINUTE_MS) });
  expect((await read()).overdue).toBe(3);
  await db("retries").limit(1).where("id", deliveries[0]?.id).update({ claimed_by: claimant.workerId });
  expect((await read()).overdue).toBe(2);
  await set(webhookId, { paused: new Date() });
  expect((await read()).overdue).toBe(0);
});

test("a reading looks at so many webhooks and rows, and the next one goes on", async () => {
  const webhooks = [await oldWebhook(3), await oldWebhook(4), await oldWebhook(9)];
  const first = await read({ maxWebhooks: 2 });
  expect(Math.floor(first.oldestSendableS / 60)).toBe(4);
  expect(first.next).toBe(webhooks[1]);
  const second = await read({ maxWebhooks: 2, after: first.next as bigint });
  expect(Math.floor(second.oldestSendableS / 60)).toBe(9);
  expect(second.next).toBeNull();
  await db.raw("analyze queue");
  expect((await read({ maxCounted: 4 })).pending).toBeGreaterThanOrEqual(4);
});

test("the latest run tells how long ago a dispatch began", async () => {
  await freshClaimant(db);
  await db("runs").update({ started: new Date(Date.now() - 3 * MINUTE_MS) });
  expect(Math.floor(((await read()).lastRunS ?? 0) / 60)).toBe(3);
});
