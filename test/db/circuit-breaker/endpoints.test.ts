import { expect, test } from "vitest";
import type { BreakerSettings } from "../../../src/db/circuit-breaker/breakers.ts";
import { type BreakerChange, decideBreakers } from "../../../src/db/circuit-breaker/decide.ts";
import { noteGone } from "../../../src/db/circuit-breaker/note-attempts.ts";
import { rows } from "../../../src/db/database.ts";
import { foldDeltas } from "../../../src/db/deliveries/rollups.ts";
import { type ClaimedDelivery, claimPending } from "../../../src/db/queue/claims.ts";
import { recordAttempts } from "../../../src/db/queue/results.ts";
import { updateWebhook } from "../../../src/db/webhooks/webhook-update.ts";
import { deleteWebhook, getWebhook } from "../../../src/db/webhooks/webhooks.ts";
import { storeDeliveries } from "../../support/stored-deliveries.ts";
import { newBox, newEndpoint } from "../endpoints/endpoints.ts";
import { ALL, freshClaimant, openQueueDatabase, result, SPACING } from "../queue/queue.ts";

const db = await openQueueDatabase();
const box = newBox();

/** Opens with the third failure. */
const SETTINGS: BreakerSettings = {
  failures: 3,
  failingSeconds: 0,
  probeSeconds: 60,
  disableSeconds: 432_000,
  disableOnGone: true,
  resendFailed: true,
};

/** An endpoint with a breaker, and pending deliveries of each event type in turn; answers the ids of its webhooks. */
async function withBreaker(deliveries: number): Promise<[bigint, bigint]> {
  const { webhooks } = await newEndpoint(db, box, [1, 2]);
  const [first, second] = webhooks.map(({ id }) => id) as [bigint, bigint];
  await updateWebhook(db, "everything", first, { breaker: SETTINGS });
  for (let n = 0; n < deliveries; n += 1)
    await storeDeliveries(db, [{ webhookId: n % 2 === 0 ? first : second, created: new Date(n * 1_000) }]);
  return [first, second];
}

const claim = async (limit = 1_000) =>
  (await claimPending(db, await freshClaimant(db), { ...ALL, limit })).deliveries;
const of = (deliveries: readonly ClaimedDelivery[], id: bigint) =>
  deliveries.filter(({ webhook }) => webhook.id === id);

/** Records results, folds them, and decides. */
async function answer(deliveries: readonly ClaimedDelivery[], status: number): Promise<BreakerChange[]> {
  await recordAttempts(
    db,
    deliveries.map((delivery) => result(delivery, status)),
    SPACING,
  );
  return decided();
}

async function decided(): Promise<BreakerChange[]> {
  while ((await foldDeltas(db)) > 0);
  const changes: BreakerChange[] = [];
  for (;;) {
    const step = await decideBreakers(db, 30);
    changes.push(...step.changes);
    if (step.decided === 0) return changes.sort((a, b) => Number(a.webhookId - b.webhookId));
  }
}

const letPass = (seconds: number) =>
  db.raw(
    `update webhook_breakers set next_probe = next_probe - make_interval(secs => :seconds),
      due = due - make_interval(secs => :seconds)`,
    { seconds },
  );

const states = (ids: readonly bigint[]) =>
  Promise.all(ids.map(async (id) => (await getWebhook(db, "everything", id))?.breaker?.state));
const both = (ids: readonly [bigint, bigint], state: BreakerChange["state"]) =>
  ids.map((webhookId) => expect.objectContaining({ webhookId, state }));

test("the failures of all event types of an endpoint count together, and hold all of them back", async () => {
  const ids = await withBreaker(10);
  const [first, second] = ids;
  const deliveries = await claim(6);
  expect(await answer(of(deliveries, first).slice(0, 2), 503)).toEqual([]);
  const seen = await Promise.all(ids.map((id) => getWebhook(db, "everything", id)));
  expect(seen.map((webhook) => webhook?.breaker?.failedAttempts)).toEqual([2, 2]);
  expect(await answer(of(deliveries, second).slice(0, 1), 503)).toEqual(both(ids, "open"));
  expect(await claim()).toEqual([]);
  const entries = await rows<{ target: string }>(
    db,
    "select target_id as target from audit_log where action = 'webhook_breaker_opened' and target_id = any(:ids::text[]) order by target_id::bigint",
    { ids: ids.map(String) },
  );
  expect(entries.map(({ target }) => target)).toEqual(ids.map(String));
});

test("an endpoint that accepts one of its event types is not held back", async () => {
  const [first, second] = await withBreaker(20);
  const deliveries = await claim();
  for (let n = 0; n < 5; n += 1) {
    expect(await answer(of(deliveries, first).slice(2 * n, 2 * n + 2), 503)).toEqual([]);
    expect(await answer(of(deliveries, second).slice(n, n + 1), 200)).toEqual([]);
  }
});

test("one delivery is the probe of an endpoint, the oldest of all event types, and its success lets all of them go", async () => {
  const ids = await withBreaker(9);
  const failing = await claim(4);
  expect(await answer(failing, 503)).toEqual(both(ids, "open"));
  await letPass(60);
  // Several processes decide at once.
  await Promise.all(Array.from({ length: 8 }, () => decideBreakers(db, 30)));
  await decided();
  const [oldest, next] = await rows<{ id: string }>(db, "select id from queue order by id");
  const probes = await claim();
  expect(probes.map(({ id }) => id)).toEqual([oldest?.id]);
  expect(await answer(probes, 503)).toEqual([]);
  await letPass(300);
  await decided();
  const again = await claim();
  expect(again.map(({ id }) => id)).toEqual([next?.id]);
  expect(again[0]?.webhook.id).not.toBe(probes[0]?.webhook.id);
  expect(await answer(again, 200)).toEqual(both(ids, "closed"));
  expect(new Set((await claim()).map(({ webhook }) => webhook.id))).toEqual(new Set(ids));
});

test("the probe of an endpoint moves to another event type when its own is deleted", async () => {
  const [first, second] = await withBreaker(8);
  await answer(await claim(4), 503);
  await letPass(60);
  await decided();
  const [probe] = await claim();
  expect(probe?.webhook.id).toBe(first);
  await deleteWebhook(db, first);
  await letPass(300);
  await decided();
  expect((await claim()).map(({ webhook }) => webhook.id)).toEqual([second]);
});

test("410 Gone for one event type disables the endpoint, and resuming one resumes all", async () => {
  const ids = await withBreaker(4);
  await noteGone(db, ids[1], (await getWebhook(db, "everything", ids[1]))?.targetUrl ?? "");
  expect(await decided()).toEqual(both(ids, "disabled"));
  expect(await claim()).toEqual([]);
  const resumed = await updateWebhook(db, "everything", ids[0], { paused: false });
  expect(resumed?.others).toHaveLength(1);
  expect(await states(ids)).toEqual(["closed", "closed"]);
  expect(await claim()).toHaveLength(4);
});

test("what failed in an outage is sent again for all event types", async () => {
  const ids = await withBreaker(8);
  await answer(await claim(4), 503);
  const failed = await storeDeliveries(
    db,
    ids.map((webhookId) => ({ webhookId, state: "failed" as const, finished: new Date() })),
  );
  await letPass(60);
  await decided();
  expect(await answer(await claim(), 200)).toEqual(both(ids, "closed"));
  const queued = await db("queue").whereIn("id", failed).pluck("id");
  expect(queued.toSorted()).toEqual(failed.toSorted());
});

test("an endpoint of which another transaction changes a webhook is decided on later, as a whole", async () => {
  const ids = await withBreaker(6);
  const deliveries = await claim();
  await recordAttempts(
    db,
    deliveries.map((delivery) => result(delivery, 503)),
    SPACING,
  );
  await foldDeltas(db);
  const changing = await db.transaction();
  await changing("webhooks").where({ id: ids[1] }).forNoKeyUpdate();
  expect(await decideBreakers(db, 30)).toEqual({ decided: 0, changes: [] });
  await changing.rollback();
  expect(await decided()).toEqual(both(ids, "open"));
});
