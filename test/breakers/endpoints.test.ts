import { expect, test } from "vitest";
import { type BreakerChange, decideBreakers } from "../../src/breakers/decide.ts";
import { noteGone } from "../../src/breakers/note-attempts.ts";
import type { ClaimedDelivery } from "../../src/queue/claims.ts";
import { cancelFirst } from "../../src/queue/deleted-webhooks.ts";
import { deleteWebhook } from "../../src/webhooks/webhook-deletion.ts";
import { updateWebhook } from "../../src/webhooks/webhook-update.ts";
import { getWebhook } from "../../src/webhooks/webhooks.ts";
import { claim, foldAll, openQueueDatabase, record, SPACING } from "../queue/queue.ts";
import { storeDeliveries } from "../support/stored-deliveries.ts";
import { newBox, newEndpoint } from "../webhooks/endpoints.ts";
import { actionsOn, answer, decided, letPass, SETTINGS } from "./breakers.ts";

const db = await openQueueDatabase();

/** An endpoint with a breaker, and pending deliveries of each event type in turn; answers the ids of its webhooks. */
async function withBreaker(deliveries: number): Promise<[bigint, bigint]> {
  const { webhooks } = await newEndpoint(db, newBox(), [1, 2]);
  const ids = webhooks.map(({ id }) => id) as [bigint, bigint];
  const breaker = { ...SETTINGS, failingSeconds: 0, disableOnGone: true, resendFailed: true };
  await updateWebhook(db, "everything", ids[0], { breaker });
  for (let n = 0; n < deliveries; n += 1)
    await storeDeliveries(db, [{ webhookId: ids[n % 2] as bigint, created: new Date(n * 1_000) }]);
  return ids;
}

const of = (deliveries: readonly ClaimedDelivery[], id: bigint) =>
  deliveries.filter(({ webhook }) => webhook.id === id);
const idsOf = (deliveries: readonly ClaimedDelivery[]) => deliveries.map(({ id }) => id);
const breakersOf = async (ids: readonly bigint[]) =>
  (await Promise.all(ids.map((id) => getWebhook(db, "everything", id)))).map((webhook) => webhook?.breaker);
const both = (ids: readonly bigint[], state: BreakerChange["state"]) =>
  ids.map((webhookId) => expect.objectContaining({ webhookId, state }));

test("the failures of all event types of an endpoint count together, and hold all of them back", async () => {
  const ids = await withBreaker(10);
  const deliveries = await claim(db, undefined, 6);
  expect(await answer(db, of(deliveries, ids[0]).slice(0, 2), 503)).toEqual([]);
  expect((await breakersOf(ids)).map((breaker) => breaker?.failedAttempts)).toEqual([2, 2]);
  expect(await answer(db, of(deliveries, ids[1]).slice(0, 1), 503)).toEqual(both(ids, "open"));
  expect(await claim(db)).toEqual([]);
  for (const id of ids) expect(await actionsOn(db, id)).toEqual(["webhook_breaker_opened"]);
});

test("an endpoint that accepts one of its event types is not held back", async () => {
  const [first, second] = await withBreaker(20);
  const deliveries = await claim(db);
  for (let n = 0; n < 5; n += 1) {
    expect(await answer(db, of(deliveries, first).slice(2 * n, 2 * n + 2), 503)).toEqual([]);
    expect(await answer(db, of(deliveries, second).slice(n, n + 1), 200)).toEqual([]);
  }
});

test("one delivery is the probe of an endpoint, the oldest of all event types, and its success lets all of them go and sends again what failed", async () => {
  const ids = await withBreaker(9);
  expect(await answer(db, await claim(db, undefined, 4), 503)).toEqual(both(ids, "open"));
  await letPass(db, 60);
  // Several processes decide at once.
  await Promise.all(Array.from({ length: 8 }, () => decideBreakers(db, 30)));
  await decided(db);
  const oldest = await db("queue").orderBy("id").limit(2).pluck("id");
  const probes = await claim(db);
  expect(idsOf(probes)).toEqual(oldest.slice(0, 1));
  expect(await answer(db, probes, 503)).toEqual([]);
  await letPass(db, 300);
  await decided(db);
  const again = await claim(db);
  expect(idsOf(again)).toEqual(oldest.slice(1));
  expect(again[0]?.webhook.id).not.toBe(probes[0]?.webhook.id);
  const failed = await storeDeliveries(
    db,
    ids.map((webhookId) => ({ webhookId, state: "failed" as const })),
  );
  expect(await answer(db, again, 200)).toEqual(both(ids, "closed"));
  const released = await claim(db);
  expect(new Set(released.map(({ webhook }) => webhook.id))).toEqual(new Set(ids));
  // What failed in the outage is sent again.
  expect(idsOf(released)).toEqual(expect.arrayContaining(failed));
});

test("the probe of an endpoint moves to another event type when its own is deleted", async () => {
  const [first, second] = await withBreaker(8);
  await answer(db, await claim(db, undefined, 4), 503);
  await letPass(db, 60);
  await decided(db);
  expect((await claim(db)).map(({ webhook }) => webhook.id)).toEqual([first]);
  await deleteWebhook(db, first, cancelFirst);
  await letPass(db, 300);
  await decided(db);
  expect((await claim(db)).map(({ webhook }) => webhook.id)).toEqual([second]);
});

test("410 Gone for one event type disables the endpoint, and resuming one resumes all", async () => {
  const ids = await withBreaker(4);
  await noteGone(db, ids[1], (await getWebhook(db, "everything", ids[1]))?.targetUrl ?? "");
  expect(await decided(db)).toEqual(both(ids, "disabled"));
  expect(await claim(db)).toEqual([]);
  const resumed = await updateWebhook(db, "everything", ids[0], { paused: false });
  expect(resumed?.others).toHaveLength(1);
  expect((await breakersOf(ids)).map((breaker) => breaker?.state)).toEqual(["closed", "closed"]);
  expect(await claim(db)).toHaveLength(4);
});

test("an endpoint of which another transaction changes a webhook is decided on later, as a whole", async () => {
  const ids = await withBreaker(6);
  await record(db, await claim(db), 503, SPACING);
  await foldAll(db);
  const changing = await db.transaction();
  await changing("webhooks").where({ id: ids[1] }).forNoKeyUpdate();
  expect(await decideBreakers(db, 30)).toEqual({ decided: 0, changes: [] });
  await changing.rollback();
  expect(await decided(db)).toEqual(both(ids, "open"));
});
