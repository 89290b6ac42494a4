import { describe, expect, test } from "vitest";
import { decideBreakers } from "../../src/breakers/decide.ts";
import { areDeliveriesExpected } from "../../src/breakers/expected.ts";
import { listHeldBack } from "../../src/breakers/held.ts";
import { noteGone } from "../../src/breakers/note-attempts.ts";
import { queueTestEvent } from "../../src/events/test-events.ts";
import { rows } from "../../src/lib/pg/database.ts";
import type { ClaimedDelivery } from "../../src/queue/claims.ts";
import { cancelFirst } from "../../src/queue/deleted-webhooks.ts";
import { endFiltered } from "../../src/queue/endings.ts";
import { assignGroups } from "../../src/queue/retry-groups.ts";
import type { Breaker, BreakerSettings } from "../../src/webhooks/breakers.ts";
import { deleteWebhook } from "../../src/webhooks/webhook-deletion.ts";
import { updateWebhook, type WebhookChanges } from "../../src/webhooks/webhook-update.ts";
import { getWebhook, type WebhookRow } from "../../src/webhooks/webhooks.ts";
import {
  claim,
  claimRetries,
  foldAll,
  freshClaimant,
  NO_WAIT,
  openQueueDatabase,
  queue,
  queueEvents,
  record,
  SPACING,
} from "../queue/queue.ts";
import { storeDeliveries } from "../support/stored-deliveries.ts";
import { actionsOn, answer, decided, letPass, SETTINGS } from "./breakers.ts";

const db = await openQueueDatabase();

const update = (id: bigint, changes: WebhookChanges) => updateWebhook(db, "everything", id, changes);
const webhookOf = async (id: bigint) => (await getWebhook(db, "everything", id)) as WebhookRow;
const breakerOf = async (id: bigint) => (await webhookOf(id)).breaker as Breaker;
const idsOf = (deliveries: readonly ClaimedDelivery[]) => deliveries.map(({ id }) => id);

/** A webhook with a breaker and pending deliveries. */
async function withBreaker(deliveries: number, settings: Partial<BreakerSettings> = {}): Promise<bigint> {
  const id = await queue(db, deliveries);
  await update(id, { breaker: { ...SETTINGS, ...settings } });
  return id;
}

/** A webhook whose breaker has opened, with so many deliveries that wait for their first attempt. */
async function opened(waiting: number, settings: Partial<BreakerSettings> = {}): Promise<bigint> {
  const id = await withBreaker(waiting + 3, settings);
  const failing = await claim(db, undefined, 3);
  await answer(db, failing.slice(0, 2), 503);
  await letPass(db, SETTINGS.failingSeconds);
  expect(await answer(db, failing.slice(2), 503)).toMatchObject([{ webhookId: id, state: "open" }]);
  return id;
}

/** Lets the time of the next probe come, and claims it. */
async function probe(): Promise<ClaimedDelivery[]> {
  await letPass(db, 300);
  await decided(db);
  return claim(db);
}

describe("a closed breaker", () => {
  test("opens after enough failures in a row that have lasted long enough, and no sooner", async () => {
    const id = await withBreaker(10);
    const deliveries = await claim(db);
    expect(await answer(db, deliveries.slice(0, 5), 503)).toEqual([]);
    await letPass(db, SETTINGS.failingSeconds - 60);
    expect(await answer(db, deliveries.slice(5, 6), 503)).toEqual([]);
    await letPass(db, 60);
    // Time alone is no evidence.
    expect(await decided(db)).toEqual([]);
    const { targetUrl } = await webhookOf(id);
    const reason = "7 attempts in a row have failed, over 30 minutes";
    expect(await answer(db, deliveries.slice(6, 7), 503)).toEqual([
      { webhookId: id, targetUrl, was: "closed", state: "open", reason },
    ]);
    expect(await breakerOf(id)).toMatchObject({ state: "open", failedAttempts: 7, settings: SETTINGS });
  });

  test("restarts its count after a success", async () => {
    const id = await withBreaker(10);
    const deliveries = await claim(db);
    await answer(db, deliveries.slice(0, 5), 503);
    await letPass(db, 3_600);
    await answer(db, deliveries.slice(5, 6), 200);
    expect(await answer(db, deliveries.slice(6, 9), 503)).toEqual([]);
    expect(await breakerOf(id)).toMatchObject({ state: "closed", failedAttempts: 3, reason: null });
    await letPass(db, SETTINGS.failingSeconds);
    expect(await answer(db, deliveries.slice(9), 503)).toMatchObject([{ state: "open" }]);
  });

  test("costs no write while attempts succeed, nor does a webhook without one", async () => {
    await queue(db, 5);
    await withBreaker(5);
    const version = () => rows(db, "select xmin::text, ctid::text, state, failures from webhook_breakers");
    const before = await version();
    await answer(db, await claim(db), 200);
    expect(await version()).toEqual(before);
    expect(before).toMatchObject([{ state: "closed", failures: 0 }]);
  });

  test("of a webhook that a user has paused does not open by what is still under way", async () => {
    const id = await withBreaker(5);
    const sent = await claim(db);
    await answer(db, sent.slice(0, 3), 503);
    await letPass(db, SETTINGS.failingSeconds);
    await update(id, { paused: true });
    expect(await answer(db, sent.slice(3), 503)).toEqual([]);
  });
});

describe("an open breaker", () => {
  test("sends one delivery at a time as a probe, the oldest due one, whichever process decides, and a run stays open for it", async () => {
    const id = await opened(5);
    expect(await claim(db)).toEqual([]);
    expect(await areDeliveriesExpected(db)).toBe(false);
    const oldest = await db("queue").where({ webhook_id: id }).orderBy("id").pluck("id");
    await letPass(db, 60);
    const severalDecide = () => Promise.all(Array.from({ length: 8 }, () => decideBreakers(db, 30)));
    await severalDecide();
    expect(await areDeliveriesExpected(db)).toBe(true);
    const claimed = (await Promise.all(Array.from({ length: 4 }, () => claim(db)))).flat();
    // Retries are older, but not due yet.
    expect(idsOf(claimed)).toEqual([oldest[0]]);
    await letPass(db, 3_600);
    await severalDecide();
    expect(await areDeliveriesExpected(db)).toBe(false);
    expect(await claim(db)).toEqual([]);
    await answer(db, claimed, 503);
    expect(idsOf(await probe())).toEqual([oldest[1]]);
  });

  test("doubles the interval between probes up to five minutes", async () => {
    const id = await opened(5);
    const seen: unknown[] = [];
    for (let n = 0; n < 4; n += 1) {
      await record(db, await probe(), 503, SPACING);
      await foldAll(db);
      await db.transaction(async (trx) => {
        await decideBreakers(trx, 30);
        const interval = "select extract(epoch from next_probe - now())::int as s from webhook_breakers";
        seen.push((await rows<{ s: number }>(trx, interval))[0]?.s);
      });
    }
    expect(seen).toEqual([120, 240, 300, 300]);
    expect(await breakerOf(id)).toMatchObject({ state: "open", failedAttempts: 7 });
  });

  test("closes when a probe succeeds, and what waited can be claimed, oldest first", async () => {
    const id = await opened(5);
    expect(await answer(db, await probe(), 200)).toMatchObject([
      { webhookId: id, was: "open", state: "closed", reason: null },
    ]);
    const waiting = idsOf(await claim(db));
    expect(waiting).toHaveLength(4);
    expect(waiting).toEqual(waiting.toSorted());
    const breaker = { state: "closed", failedAttempts: 0, nextProbe: null, reason: null };
    expect(await webhookOf(id)).toMatchObject({ paused: null, breaker });
  });

  test("lets a retry that is due through for one attempt when nothing else waits, though a hundred older ones are not due", async () => {
    const id = await withBreaker(120);
    const claimant = await freshClaimant(db);
    const failing = await claim(db, claimant);
    await answer(db, failing.slice(0, 119), 503);
    await letPass(db, SETTINGS.failingSeconds);
    expect(await answer(db, failing.slice(119), 503, NO_WAIT)).toMatchObject([{ state: "open" }]);
    await letPass(db, 60);
    await decided(db);
    expect(await db("webhooks").pluck("test_delivery")).toEqual([failing[119]?.id]);
    expect(await assignGroups(db, claimant.runId)).toMatchObject([{ webhookId: id, isProbe: true }]);
    const retried = await claimRetries(db, claimant);
    expect(idsOf(retried)).toEqual([failing[119]?.id]);
    await record(db, retried, 503);
    expect(await claimRetries(db, claimant)).toEqual([]);
  });

  test("has no probe without waiting deliveries; the next event is one", async () => {
    const id = await opened(0);
    await db("retries").delete();
    expect(await probe()).toEqual([]);
    await queueEvents(db, [id]);
    expect(await claim(db)).toEqual([]);
    expect(await probe()).toHaveLength(1);
  });

  test("has another probe at the next look when its filter does not match the first", async () => {
    await opened(2);
    const unmatched = await probe();
    await endFiltered(db, (unmatched[0] as ClaimedDelivery).token.workerId, unmatched);
    await decided(db);
    expect(await claim(db)).toHaveLength(1);
  });

  test("lets a test event through, also when the next probe is due, and its success closes it", async () => {
    const id = await opened(5);
    const event = { apiKeyId: (await webhookOf(id)).apiKeyId, webhookId: id, process: 1, payload: "{}" };
    const made = await queueTestEvent(db, "everything", event);
    const claimed = await probe();
    expect(idsOf(claimed)).toEqual([made?.deliveryId]);
    expect(await answer(db, claimed, 200)).toMatchObject([{ state: "closed" }]);
    expect(await claim(db)).toHaveLength(5);
  });

  test("sends no probe while the receiver wants no requests, and tells when it will", async () => {
    const id = await opened(5);
    await db.raw("update webhooks set held_until = now() + interval '10 minutes' where id = ?", [String(id)]);
    expect(await probe()).toEqual([]);
    const { breaker, heldUntil } = await webhookOf(id);
    expect(new Date(breaker?.nextProbe ?? 0)).toEqual(heldUntil);
    expect(await listHeldBack(db, 1)).toMatchObject([{ webhookId: id, nextProbe: heldUntil }]);
  });

  test("sends no probes while a user pauses the webhook, and restarts its count once it is resumed", async () => {
    const id = await opened(5);
    expect((await update(id, { paused: true }))?.before.breaker?.state).toBe("open");
    expect(await probe()).toEqual([]);
    await update(id, { paused: false });
    expect(await answer(db, await claim(db), 503)).toEqual([]);
    expect(await breakerOf(id)).toMatchObject({ state: "closed", failedAttempts: 5 });
  });

  test.each([
    ["resuming the webhook", { paused: false }],
    ["removing the breaker", { breaker: null }],
  ])("%s releases the deliveries that it held back, except a probe in flight", async (_what, change) => {
    const id = await opened(5);
    await probe();
    await update(id, change);
    expect(await claim(db)).toHaveLength(4);
  });

  test("stays open whatever else is changed, and takes new settings at once", async () => {
    const id = await opened(5);
    expect((await update(id, { name: "Shop" }))?.webhook.breaker?.state).toBe("open");
    const breaker = { ...SETTINGS, probeSeconds: 1 };
    expect((await update(id, { breaker }))?.webhook.breaker?.state).toBe("open");
    await letPass(db, 1);
    await decided(db);
    expect(await claim(db)).toHaveLength(1);
  });

  test("is closed by a version without breakers that resumes the webhook", async () => {
    const id = await opened(5);
    await db.raw("update webhooks set paused = null, revision = revision + 1");
    expect(await breakerOf(id)).toMatchObject({ state: "closed", reason: null, nextProbe: null });
    await letPass(db, 60);
    await decided(db);
    expect(await db("webhook_breakers").pluck("state")).toEqual(["closed"]);
    expect(await claim(db)).toHaveLength(5);
  });

  test("goes with its webhook", async () => {
    const id = await opened(5);
    const sent = await probe();
    await deleteWebhook(db, id, cancelFirst);
    expect(await db("webhook_breakers")).toEqual([]);
    expect(await answer(db, sent, 503)).toEqual([]);
  });

  test("disables the webhook by a probe that fails after days of failures, until a user resumes it", async () => {
    const id = await opened(5);
    await letPass(db, SETTINGS.disableSeconds);
    // Without an attempt nothing is known.
    expect(await decided(db)).toEqual([]);
    const reason = "no attempt has succeeded for 5 days";
    expect(await answer(db, await claim(db), 503)).toMatchObject([
      { webhookId: id, was: "open", state: "disabled", reason },
    ]);
    expect(await probe()).toEqual([]);
    await update(id, { paused: false });
    const waiting = await claim(db);
    expect(waiting).toHaveLength(4);
    expect(await answer(db, waiting, 503)).toEqual([]);
  });
});

describe("410 Gone", () => {
  test("disables a webhook that has chosen it, and no other", async () => {
    const [chosen, other] = [await withBreaker(3, { disableOnGone: true }), await withBreaker(3)];
    const sent = await claim(db);
    for (const id of [chosen, other]) await noteGone(db, id, (await webhookOf(id)).targetUrl);
    const reason = "the endpoint answered 410 Gone";
    expect(await answer(db, sent.slice(0, 2), 410)).toMatchObject([
      { webhookId: chosen, was: "closed", state: "disabled", reason },
    ]);
    expect((await breakerOf(other)).state).toBe("closed");
    expect(await actionsOn(db, chosen)).toEqual(["webhook_disabled"]);
    // What is still under way changes nothing, also when it succeeds.
    expect(await answer(db, sent.slice(2), 200)).toEqual([]);
  });

  test("of the URL before a change disables nothing", async () => {
    const id = await withBreaker(1, { disableOnGone: true });
    const { targetUrl: first } = await webhookOf(id);
    await noteGone(db, id, first);
    const url = "https://example.com/second";
    await update(id, { address: { url, targetUrl: url } });
    expect(await decided(db)).toEqual([]);
    // A request to the old URL was in flight.
    await noteGone(db, id, first);
    expect(await decided(db)).toEqual([]);
    await noteGone(db, id, url);
    expect(await decided(db)).toMatchObject([{ webhookId: id, state: "disabled" }]);
  });
});

describe("deliveries that failed in an outage", () => {
  const failed = (webhookId: bigint, attempts = 4) => ({ webhookId, state: "failed" as const, attempts });
  const leftFailed = () => db("deliveries").where({ outcome: "failed" }).orderBy("id").pluck("id");

  /** A webhook whose breaker has opened and sends again what failed. One delivery waits. */
  async function openedWithFailed(n: number): Promise<bigint> {
    const id = await opened(1, { resendFailed: true });
    await storeDeliveries(
      db,
      Array.from({ length: n }, () => failed(id)),
    );
    return id;
  }

  /** Lets what is sent again succeed, step by step; answers the sizes of the steps. */
  async function sendAll(maxPending = 0): Promise<number[]> {
    const sizes: number[] = [];
    for (let again = await claim(db); again.length > 0; again = await claim(db)) {
      sizes.push(again.length);
      await record(db, again, 200);
      await letPass(db, 1);
      await decided(db, maxPending);
    }
    return sizes;
  }

  test.each([true, false])(
    "is sent again after it, once and fewer than three times in all, if that was chosen: %s",
    async (resendFailed) => {
      const id = await withBreaker(4, { resendFailed });
      const [before, ...sent] = await claim(db);
      // Before the outage, with a success after it.
      await storeDeliveries(db, [failed(id)]);
      await answer(db, before ? [before] : [], 200);
      await letPass(db, 600);
      await answer(db, sent.slice(0, 2), 503);
      const chosen = await storeDeliveries(db, [failed(id), failed(id, 8)]);
      await storeDeliveries(db, [failed(id, 12)]);
      await letPass(db, SETTINGS.failingSeconds);
      expect(await answer(db, sent.slice(2), 503)).toMatchObject([{ state: "open" }]);
      await queueEvents(db, [id]);
      expect(await answer(db, await probe(), 200)).toMatchObject([{ state: "closed" }]);
      const again = await claim(db);
      expect(idsOf(again)).toEqual(resendFailed ? chosen.toSorted() : []);
      const actions = ["webhook_breaker_opened", "webhook_breaker_closed"];
      expect(await actionsOn(db, id)).toEqual(resendFailed ? [...actions, "deliveries_sent_again"] : actions);
      await storeDeliveries(db, [failed(id)]);
      await decided(db);
      expect(await claim(db)).toEqual([]);
    },
  );

  test.each([
    { title: "500 at a time", failed: 1_199, maxPending: 0, steps: [500, 500, 199] },
    { title: "as far as deliveries may be pending", failed: 50, maxPending: 20, steps: [20, 20, 10] },
  ])(
    "is sent again $title, the next when the last ones are attempted, and a run goes on meanwhile",
    async ({ failed, maxPending, steps }) => {
      await openedWithFailed(failed);
      await record(db, await probe(), 200);
      await decided(db, maxPending);
      expect(await areDeliveriesExpected(db)).toBe(true);
      expect(await sendAll(maxPending)).toEqual(steps);
      expect(await areDeliveriesExpected(db)).toBe(false);
      expect(await leftFailed()).toEqual([]);
    },
  );

  test.each([
    [
      "in which the next outage begins, after that one",
      async (id: bigint) => {
        const again = await claim(db, undefined, 3);
        await record(db, again.slice(0, 2), 503, SPACING);
        await foldAll(db);
        await letPass(db, SETTINGS.failingSeconds);
        await record(db, again.slice(2), 503, SPACING);
        await foldAll(db);
        expect(await decideBreakers(db, 30)).toMatchObject({ changes: [{ webhookId: id, state: "open" }] });
        expect(await answer(db, await probe(), 200)).toMatchObject([{ state: "closed" }]);
      },
    ],
    [
      "in which a user pauses and resumes the webhook",
      async (id: bigint) => {
        for (const paused of [true, false]) await update(id, { paused });
      },
    ],
  ])("is sent again to the last one also after a step %s", async (_what, meanwhile) => {
    const id = await openedWithFailed(520);
    await record(db, await probe(), 200);
    await foldAll(db);
    expect(await decideBreakers(db, 30)).toMatchObject({ changes: [{ state: "closed" }] });
    // One step.
    await decideBreakers(db, 30);
    await meanwhile(id);
    await sendAll();
    expect(await leftFailed()).toEqual([]);
  });
});
