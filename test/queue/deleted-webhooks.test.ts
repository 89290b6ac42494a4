import { randomUUID } from "node:crypto";
import { expect, test } from "vitest";
import { rows } from "../../src/lib/pg/database.ts";
import { cancelFirst, cancelOfDeleted } from "../../src/queue/deleted-webhooks.ts";
import { cancelOfWebhooks } from "../../src/queue/endings.ts";
import { deleteWebhook } from "../../src/webhooks/webhook-deletion.ts";
import { PATIENCE_MS } from "../support/patience.ts";
import { storeDeliveries } from "../support/stored-deliveries.ts";
import { claim, freshClaimant, openQueueDatabase, queue } from "./queue.ts";
import { expectRollups } from "./storage-model/invariants.ts";

const db = await openQueueDatabase();

const states = () =>
  rows(db, "select state, reason, count(*)::int as n from all_deliveries group by 1, 2 order by 1, 2");

/** Runs steps until nothing is cancelled; answers how many each cancelled. */
async function cancelAll(): Promise<number[]> {
  const steps: number[] = [];
  for (let n = await cancelOfDeleted(db); n > 0; n = await cancelOfDeleted(db)) steps.push(n);
  return steps;
}

/** As if webhooks had been deleted so long ago that no publish can know them as live ones any more. */
const longAgo = () =>
  db.raw("update webhooks set deleted = now() - interval '1 hour' where deleted is not null");

const emptied = () => db("webhooks").whereNotNull("emptied").orderBy("id").pluck("id");

test("deleting a webhook cancels the first of its open deliveries at once, the others in the background", async () => {
  const [webhookId, other] = [await queue(db, 1_500), await queue(db, 2)];
  const { runId } = await freshClaimant(db);
  await storeDeliveries(db, Array(1_200).fill({ webhookId, runId, state: "retrying" }));
  await deleteWebhook(db, webhookId, cancelFirst);
  expect(await states()).toEqual([
    { state: "cancelled", reason: "webhook deleted", n: 1_000 },
    { state: "pending", reason: null, n: 1_002 },
    { state: "retrying", reason: null, n: 700 },
  ]);
  expect(await cancelAll()).toEqual([1_700]);
  expect(await states()).toEqual([
    { state: "cancelled", reason: "webhook deleted", n: 2_700 },
    { state: "pending", reason: null, n: 2 },
  ]);
  expect(await db("queue").distinct("webhook_id").pluck("webhook_id")).toEqual([other]);
  await expectRollups(db);
});

test("steps take so many rows of each table, over all deleted webhooks, and several processes cancel each once", async () => {
  const webhooks = await Promise.all(Array.from({ length: 5 }, () => queue(db, 0)));
  await storeDeliveries(
    db,
    webhooks.flatMap((webhookId) => Array(900).fill({ webhookId })),
  );
  await db("webhooks").update({ deleted: new Date() });
  expect([await cancelOfDeleted(db), await cancelOfDeleted(db)]).toEqual([1_000, 1_000]);
  await Promise.all([cancelAll(), cancelAll(), cancelAll()]);
  await cancelAll();
  expect(await states()).toEqual([{ state: "cancelled", reason: "webhook deleted", n: 4_500 }]);
  await expectRollups(db);
});

test("a delivery that is being claimed at the same time is left to its attempt, and nothing waits for it", async () => {
  const webhookId = await queue(db, 3);
  const claimant = await freshClaimant(db);
  await db.transaction(async (claiming) => {
    expect(await claim(claiming, claimant, 2)).toHaveLength(2);
    await db.transaction(async (trx) => {
      await trx.raw(`set local lock_timeout = ${PATIENCE_MS}`);
      expect(await cancelOfWebhooks(trx, [webhookId], 10)).toBe(1);
    });
  });
});

test("what appears after the deletion, as from a publish that was under way, is cancelled, until none can appear any more", async () => {
  const webhookId = await queue(db, 1);
  await deleteWebhook(db, webhookId, cancelFirst);
  await cancelAll();
  expect(await emptied()).toEqual([]);
  await storeDeliveries(db, [{ webhookId }, { webhookId, state: "retrying" }]);
  expect(await cancelAll()).toEqual([2]);
  await longAgo();
  await storeDeliveries(db, [{ webhookId }]);
  expect(await cancelAll()).toEqual([1]);
  expect(await emptied()).toEqual([webhookId]);
});

test("a webhook with a delivery that is being sent, or an event that is being fanned out, is looked at again", async () => {
  const [sending, fanning, other] = [await queue(db, 1), await queue(db, 0), await queue(db, 0)];
  await claim(db);
  await db("webhooks").update({ deleted: new Date(), deleted_revision: 5n });
  await db("webhooks").where({ id: other }).update({ process: 2 });
  await longAgo();
  await db("fan_out").insert({ event_id: randomUUID(), process: 1, revision: 4, remaining: 1 });
  expect(await cancelAll()).toEqual([]);
  expect(await emptied()).toEqual([other]);
  // Of a moment at which the webhook was deleted already.
  await db("fan_out").update({ revision: 5 });
  expect(await cancelAll()).toEqual([]);
  expect(await emptied()).toEqual([fanning, other]);
  expect(await db("webhooks").whereNull("emptied").pluck("id")).toEqual([sending]);
});
