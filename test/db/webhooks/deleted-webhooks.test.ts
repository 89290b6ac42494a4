import { expect, test } from "vitest";
import { rows } from "../../../src/db/database.ts";
import { countsSince } from "../../../src/db/deliveries/rollups.ts";
import { revokeApiKey } from "../../../src/db/keys/key-revocation.ts";
import { claimGroup, claimPending } from "../../../src/db/queue/claims.ts";
import { recordAttempts } from "../../../src/db/queue/results.ts";
import { assignGroups } from "../../../src/db/queue/retry-groups.ts";
import { endExpiredWorkers } from "../../../src/db/queue/workers.ts";
import { cancelOfDeleted, deleteWebhook } from "../../../src/db/webhooks/webhooks.ts";
import { storeDeliveries } from "../../support/stored-deliveries.ts";
import { ALL, freshClaimant, NO_WAIT, openQueueDatabase, queue, result, SPACING } from "../queue/queue.ts";

const db = await openQueueDatabase();

const states = () =>
  rows(db, "select state, reason, count(*)::int as n from all_deliveries group by 1, 2 order by 1, 2");

/** Runs steps until nothing is cancelled; answers how many each cancelled. */
async function cancelAll(): Promise<number[]> {
  const steps: number[] = [];
  for (let n = await cancelOfDeleted(db); n > 0; n = await cancelOfDeleted(db)) steps.push(n);
  return steps;
}

/** As if a webhook had been deleted so long ago that no publish can know it as a live one any more. */
const longAgo = () =>
  db.raw("update webhooks set deleted = now() - interval '1 hour' where deleted is not null");

const emptied = () => db("webhooks").whereNotNull("emptied").orderBy("id").pluck("id");

async function revokeKeyOf(webhookId: bigint): Promise<void> {
  const [key] = await db("webhooks").where("id", String(webhookId)).pluck("api_key_id");
  await revokeApiKey(db, "everything", key as string, "delete");
}

test.each([
  ["deleting a webhook", (webhookId: bigint) => deleteWebhook(db, webhookId)],
  ["revoking the key of a webhook", revokeKeyOf],
])(
  "%s cancels the first of its open deliveries at once, the others in the background",
  async (_what, end) => {
    const [webhookId, other] = [await queue(db, 1_500), await queue(db, 2)];
    const { runId } = await freshClaimant(db);
    await storeDeliveries(
      db,
      Array.from({ length: 1_200 }, () => ({ webhookId, runId, state: "retrying" as const })),
    );
    await end(webhookId);
    expect(await db("webhooks").whereNotNull("deleted").pluck("id")).toEqual([webhookId]);
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
    const [counted] = await rows(
      db,
      `select sum(cancelled)::int as n from (${countsSince("hour", "webhook_id = 0", "true")}) c`,
    );
    expect(counted).toEqual({ n: 2_700 });
    expect(await db("queue").distinct("webhook_id").pluck("webhook_id")).toEqual([other]);
  },
);

test("steps take so many rows of each table, over all deleted webhooks", async () => {
  const webhooks = await Promise.all([1, 2, 3].map(() => queue(db, 0)));
  const each = [900, 900, 900];
  await storeDeliveries(
    db,
    webhooks.flatMap((webhookId, n) => Array.from({ length: each[n] as number }, () => ({ webhookId }))),
  );
  await db.raw("update webhooks set deleted = now()");
  expect(await cancelAll()).toEqual([1_000, 1_000, 700]);
});

test("what is being sent is left to the result of its attempt, and cancelled when its worker has died", async () => {
  const webhookId = await queue(db, 6);
  const [living, dying] = [await freshClaimant(db), await freshClaimant(db, -1)];
  const { deliveries } = await claimPending(db, living, { ...ALL, limit: 2 });
  await claimPending(db, dying, { ...ALL, limit: 2 });
  await deleteWebhook(db, webhookId);
  expect(await states()).toEqual([
    { state: "cancelled", reason: "webhook deleted", n: 2 },
    { state: "delivering", reason: null, n: 4 },
  ]);
  expect(await cancelAll()).toEqual([]);
  await endExpiredWorkers(db);
  expect(await cancelAll()).toEqual([2]);
  const results = deliveries.map((delivery, n) => result(delivery, n === 0 ? 200 : 500));
  await recordAttempts(db, results, SPACING);
  expect(await states()).toEqual([
    { state: "cancelled", reason: "webhook deleted", n: 5 },
    { state: "delivered", reason: null, n: 1 },
  ]);
});

test("a retry that is under way is left to its attempt, too", async () => {
  const webhookId = await queue(db, 3);
  const claimant = await freshClaimant(db);
  const first = (await claimPending(db, claimant, ALL)).deliveries;
  await recordAttempts(
    db,
    first.map((delivery) => result(delivery, 500)),
    NO_WAIT,
  );
  await assignGroups(db, claimant.runId);
  const group = { group: 1, limit: 1, excluded: [] };
  const { deliveries } = await claimGroup(db, claimant, group);
  await deleteWebhook(db, webhookId);
  expect(await states()).toMatchObject([
    { state: "cancelled", n: 2 },
    { state: "retrying", n: 1 },
  ]);
  const [recorded] = await recordAttempts(
    db,
    deliveries.map((delivery) => result(delivery, 500)),
    SPACING,
  );
  expect(recorded?.[1]).toBe("cancelled");
});

test("what appears after the deletion, as from a publish that was under way, is cancelled, until none can appear any more", async () => {
  const webhookId = await queue(db, 1);
  await deleteWebhook(db, webhookId);
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
  await claimPending(db, await freshClaimant(db), ALL);
  await db("webhooks")
    .whereIn("id", [sending, fanning, other])
    .update({ deleted: new Date(), deleted_revision: 5n });
  await db("webhooks").where({ id: other }).update({ process: 2 });
  await longAgo();
  const eventId = "01900000-0000-7000-8000-000000000000";
  await db("fan_out").insert({ event_id: eventId, process: 1, revision: 4, remaining: 1 });
  expect(await cancelAll()).toEqual([]);
  expect(await emptied()).toEqual([other]);
  // Of a moment at which the webhook was deleted already.
  await db("fan_out").update({ revision: 5 });
  expect(await cancelAll()).toEqual([]);
  expect(await emptied()).toEqual([fanning, other]);
});

test("several processes at once cancel each delivery once", async () => {
  const webhookId = await queue(db, 0);
  await storeDeliveries(
    db,
    Array.from({ length: 2_500 }, () => ({ webhookId })),
  );
  await db.raw("update webhooks set deleted = now()");
  await Promise.all([cancelAll(), cancelAll(), cancelAll()]);
  await cancelAll();
  expect(await states()).toEqual([{ state: "cancelled", reason: "webhook deleted", n: 2_500 }]);
  const [counted] = await rows(
    db,
    `select sum(cancelled)::int as n from (${countsSince("hour", "webhook_id = 0", "true")}) c`,
  );
  expect(counted).toEqual({ n: 2_500 });
});
