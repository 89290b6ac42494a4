import { randomUUID } from "node:crypto";
import { expect, test } from "vitest";
import { rows } from "../../../src/db/database.ts";
import { imbalance, readLedger } from "../../../src/db/deliveries/ledger.ts";
import { sendAgain } from "../../../src/db/deliveries/send-again.ts";
import { queueTestEvent } from "../../../src/db/events/test-events.ts";
import { claimPending } from "../../../src/db/queue/claims.ts";
import { endBeyond } from "../../../src/db/queue/endings.ts";
import { freshClaimant, openQueueDatabase, queue } from "./queue.ts";

const db = await openQueueDatabase();

const idsOf = async (webhookId: bigint): Promise<string[]> =>
  (
    await rows<{ id: string }>(db, "select id from queue where webhook_id = :webhookId order by id", {
      webhookId,
    })
  ).map(({ id }) => id);

test("of a webhook for which more wait than the limit, the latest fail as queue full and the oldest stay", async () => {
  const [full, other] = [await queue(db, 25), await queue(db, 10)];
  const before = await idsOf(full);
  expect(await endBeyond(db, 10, 1_000)).toBe(15);
  expect(await idsOf(full)).toEqual(before.slice(0, 10));
  expect(await idsOf(other)).toHaveLength(10);
  const failed = await db("deliveries").select("id", "outcome", "reason", "attempts").orderBy("id");
  expect(failed).toEqual(
    before.slice(10).map((id) => ({ id, outcome: "failed", reason: "queue full", attempts: 0 })),
  );
  expect(await endBeyond(db, 10, 1_000)).toBe(0);
  expect(imbalance(await readLedger(db))).toBe(0n);
});

test("it goes on a step at a time, and several processes at once never fail more than is beyond the limit", async () => {
  const webhookId = await queue(db, 60);
  const oldest = (await idsOf(webhookId)).slice(0, 20);
  const steps = await Promise.all(Array.from({ length: 6 }, () => endBeyond(db, 20, 10)));
  for (let step = 1; step > 0; ) step = await endBeyond(db, 20, 10);
  expect(Math.max(...steps)).toBe(10);
  expect(await idsOf(webhookId)).toEqual(oldest);
});

test("what a worker has claimed is left to it", async () => {
  const webhookId = await queue(db, 5);
  const claimed = await claimPending(db, await freshClaimant(db), { limit: 5, after: 0n, excluded: [] });
  expect(claimed.deliveries).toHaveLength(5);
  expect(await endBeyond(db, 2, 100)).toBe(0);
  expect(await idsOf(webhookId)).toHaveLength(5);
});

test("a delivery that failed as queue full can be sent again", async () => {
  const webhookId = await queue(db, 3);
  const [, , latest] = await idsOf(webhookId);
  expect(await endBeyond(db, 2, 100)).toBe(1);
  await sendAgain(db, "everything", latest as string, 30);
  expect(await idsOf(webhookId)).toContain(latest);
});

test("the test event of a paused webhook with a full queue is sent", async () => {
  const webhookId = await queue(db, 10);
  await db("webhooks").where({ id: webhookId }).update({ paused: new Date() });
  const event = { apiKeyId: randomUUID(), webhookId, process: 1, payload: "{}" };
  const made = await queueTestEvent(db, "everything", event);
  expect(await endBeyond(db, 10, 100)).toBe(0);
  const { deliveries } = await claimPending(db, await freshClaimant(db), {
    limit: 5,
    after: 0n,
    excluded: [],
  });
  expect(deliveries.map(({ id }) => id)).toEqual([made?.deliveryId]);
});
