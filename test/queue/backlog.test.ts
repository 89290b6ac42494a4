import { randomUUID } from "node:crypto";
import { expect, test } from "vitest";
import { sendAgain } from "../../src/log/send-again.ts";
import { readBacklog } from "../../src/queue/backlog.ts";
import { queueMissed } from "../../src/replays/backfill.ts";
import type { RunningReplay } from "../../src/replays/running.ts";
import { ensurePartitions, firstIdOf, NIL_ID } from "../../src/schema/partitions.ts";
import { claim, failFirst, freshClaimant, openQueueDatabase, queue } from "../queue/queue.ts";
import { aWebhook } from "../support/builders.ts";
import { idAt, storeDeliveries } from "../support/stored-deliveries.ts";

const MINUTE_MS = 60_000;
/** In the middle of a minute, so that the same number of whole minutes has passed while a test takes half of one. */
const minutesAgo = (minutes: number) => new Date(Date.now() - (minutes + 0.5) * MINUTE_MS);
const YESTERDAY = minutesAgo(24 * 60);

const db = await openQueueDatabase();

const read = (options: Partial<Parameters<typeof readBacklog>[1]> = {}) =>
  readBacklog(db, { after: 0n, ...options });

/** The minutes of the oldest sendable delivery. */
const oldestMinutes = async () => Math.floor((await read()).oldestSendableS / 60);

/** A webhook with two deliveries that were published so long ago. */
const oldWebhook = (minutes: number, columns = {}) =>
  aWebhook(columns)
    .having({ created: minutesAgo(minutes) }, { created: minutesAgo(minutes - 1) })
    .in(db);

test("an empty queue has no backlog; the latest run tells how long ago a dispatch began", async () => {
  const nothing = { pending: 0, retrying: 0, overdue: 0, oldestSendableS: 0, next: null, lastRunS: null };
  expect(await read()).toEqual(nothing);
  await freshClaimant(db);
  await db("runs").update({ started: minutesAgo(3) });
  expect(Math.floor(((await read()).lastRunS ?? 0) / 60)).toBe(3);
});

test("the oldest sendable delivery is that of no webhook that is paused, deleted, rate limited or failing", async () => {
  await oldWebhook(5);
  await oldWebhook(10, { paused: new Date() });
  await oldWebhook(11, { deleted: new Date() });
  await oldWebhook(12, { rate_limit: 1 });
  expect(await oldestMinutes()).toBe(5);
  const webhookId = await oldWebhook(13);
  expect(await oldestMinutes()).toBe(13);
  const retryAt = new Date(Date.now() + MINUTE_MS);
  await storeDeliveries(db, [{ webhookId, state: "retrying", attempts: 1, retryAt }]);
  expect(await oldestMinutes()).toBe(5);
  expect(await read()).toMatchObject({ pending: 10, retrying: 1 });
});

test("a delivery that a worker has claimed does not wait; one of a worker whose lease ended does", async () => {
  await oldWebhook(5);
  await claim(db);
  expect(await oldestMinutes()).toBe(0);
  await db("workers").delete();
  expect(await oldestMinutes()).toBe(5);
});

test("a delivery of yesterday that is sent again waits from then on", async () => {
  const webhookId = await queue(db, 0);
  const failed = { state: "failed", reason: "queue full", created: YESTERDAY } as const;
  const [id] = await storeDeliveries(db, [{ webhookId, ...failed }]);
  await sendAgain(db, "everything", id as string, 30);
  expect(await read()).toMatchObject({ pending: 1 });
  expect(await oldestMinutes()).toBe(0);
  await db("queue").update({ queued: minutesAgo(3) });
  expect(await oldestMinutes()).toBe(3);
});

test("an event of yesterday that a replay delivers to a new webhook waits from then on", async () => {
  const webhookId = await queue(db, 0);
  await ensurePartitions(db, 30, [YESTERDAY]);
  const event = { api_key_id: randomUUID(), idempotency_key: "k", process: 1, user_id: "u", payload: "{}" };
  await db("events").insert({ ...event, id: idAt(YESTERDAY), occurred: YESTERDAY });
  const replay = { toId: firstIdOf(new Date()) } as RunningReplay;
  const limits = { retentionDays: 30, settledMs: 0 };
  const { queued } = await queueMissed(db, replay, webhookId, NIL_ID, 10, limits);
  expect(queued).toEqual(await db("queue").pluck("id"));
  expect(await oldestMinutes()).toBe(0);
});

test("an event that is not fanned out yet waits", async () => {
  await db("fan_out").insert({ event_id: idAt(minutesAgo(4)), process: 1, revision: 1, remaining: 5 });
  expect(await oldestMinutes()).toBe(4);
});

test("a retry is overdue a minute after it was due, unless it is claimed or its webhook is paused", async () => {
  await queue(db, 3);
  const { workerId } = await failFirst(db);
  expect(await read()).toMatchObject({ retrying: 3, overdue: 0 });
  await db("retries").update({ due: minutesAgo(2) });
  expect((await read()).overdue).toBe(3);
  await db("retries").whereIn("id", db("retries").select("id").limit(1)).update({ claimed_by: workerId });
  expect((await read()).overdue).toBe(2);
  await db("webhooks").update({ paused: new Date() });
  expect((await read()).overdue).toBe(0);
});

test("a reading is limited in webhooks and rows, and the next one continues", async () => {
  const webhooks = [await oldWebhook(3), await oldWebhook(4), await oldWebhook(9)];
  const first = await read({ maxWebhooks: 2 });
  expect([Math.floor(first.oldestSendableS / 60), first.next]).toEqual([4, webhooks[1]]);
  const second = await read({ maxWebhooks: 2, after: first.next as bigint });
  expect([Math.floor(second.oldestSendableS / 60), second.next]).toEqual([9, null]);
  await db.raw("analyze queue");
  expect((await read({ maxCounted: 4 })).pending).toBeGreaterThanOrEqual(4);
});
