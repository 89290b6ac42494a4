import { expect, test } from "vitest";
import type { Breaker, BreakerSettings } from "../../../src/db/circuit-breaker/breakers.ts";
import { type BreakerChange, decideBreakers } from "../../../src/db/circuit-breaker/decide.ts";
import { areDeliveriesExpected } from "../../../src/db/circuit-breaker/expected.ts";
import { noteGone } from "../../../src/db/circuit-breaker/note-attempts.ts";
import { rows } from "../../../src/db/database.ts";
import { imbalance, readLedger } from "../../../src/db/deliveries/ledger.ts";
import { foldDeltas } from "../../../src/db/deliveries/rollups.ts";
import { queueTestEvent } from "../../../src/db/events/test-events.ts";
import { type ClaimedDelivery, claimGroup, claimPending } from "../../../src/db/queue/claims.ts";
import { endBeyond, endFiltered } from "../../../src/db/queue/endings.ts";
import { recordAttempts } from "../../../src/db/queue/results.ts";
import {
  adoptRetries,
  assignGroups,
  groupStatuses,
  leavePaused,
} from "../../../src/db/queue/retry-groups.ts";
import { closeRun } from "../../../src/db/queue/runs.ts";
import { endExpiredWorkers } from "../../../src/db/queue/workers.ts";
import { updateWebhook } from "../../../src/db/webhooks/webhook-update.ts";
import { deleteWebhook, getWebhook, type WebhookRow } from "../../../src/db/webhooks/webhooks.ts";
import { ALL, freshClaimant, NO_WAIT, openQueueDatabase, queue, result, SPACING } from "../queue/queue.ts";

const db = await openQueueDatabase();

const SETTINGS: BreakerSettings = {
  failures: 3,
  failingSeconds: 1_800,
  probeSeconds: 60,
  disableSeconds: 432_000,
  disableOnGone: false,
  resendFailed: false,
};

/** A webhook with a breaker and pending deliveries. */
async function withBreaker(deliveries: number, settings: Partial<BreakerSettings> = {}): Promise<bigint> {
  const id = await queue(db, deliveries);
  await updateWebhook(db, "everything", id, { breaker: { ...SETTINGS, ...settings } });
  return id;
}

const claim = async (limit = 1_000) => {
  const { deliveries } = await claimPending(db, await freshClaimant(db), { ...ALL, limit });
  return deliveries;
};

/** Records results, and folds them. */
async function record(
  deliveries: readonly ClaimedDelivery[],
  status: number,
  spacing = SPACING,
): Promise<void> {
  await recordAttempts(
    db,
    deliveries.map((delivery) => result(delivery, status)),
    spacing,
  );
  while ((await foldDeltas(db)) > 0);
}

/** Records results, folds them, and decides. */
async function answer(
  deliveries: readonly ClaimedDelivery[],
  status: number,
  spacing = SPACING,
): Promise<BreakerChange[]> {
  await record(deliveries, status, spacing);
  return decided();
}

async function decided(maxPending = 0): Promise<BreakerChange[]> {
  while ((await foldDeltas(db)) > 0);
  const changes: BreakerChange[] = [];
  for (;;) {
    const step = await decideBreakers(db, 30, maxPending);
    changes.push(...step.changes);
    // A breaker that is due at once, since it sends again, is decided on again.
    if (step.decided === 0) return changes;
  }
}

/** Makes what has happened so far so much older, but for the deliveries. */
async function letPass(seconds: number): Promise<void> {
  const columns = [
    "since",
    "failing_since",
    "outage_since",
    "next_probe",
    "due",
    "resend_from",
    "resend_until",
  ];
  const earlier = columns.map((column) => `${column} = ${column} - make_interval(secs => :seconds)`);
  await db.raw(`update webhook_breakers set ${earlier.join(", ")}`, { seconds });
  await db.raw("update deliveries set finished = finished - make_interval(secs => :seconds)", { seconds });
}

const webhookOf = async (id: bigint) => (await getWebhook(db, "everything", id)) as WebhookRow;
const breakerOf = async (id: bigint) => (await webhookOf(id)).breaker as Breaker;

/** A webhook whose breaker has opened, with so many deliveries that wait for their first attempt. */
async function opened(waiting: number, settings: Partial<BreakerSettings> = {}): Promise<bigint> {
  const id = await withBreaker(waiting + 3, settings);
  const failing = await claim(3);
  await answer(failing.slice(0, 2), 503);
  await letPass(settings.failingSeconds ?? SETTINGS.failingSeconds);
  expect(await answer(failing.slice(2), 503)).toMatchObject([{ webhookId: id, state: "open" }]);
  return id;
}

/** Lets the time of the next probe come, and claims it. */
async function probe(): Promise<ClaimedDelivery[]> {
  await letPass(300);
  await decided();
  return claim();
}

async function expectBalanced(): Promise<void> {
  expect(imbalance(await readLedger(db))).toBe(0n);
}

const entries = async (id: bigint) =>
  (
    await rows<{ action: string }>(
      db,
      "select action from audit_log where target_id = :id::text order by id",
      { id: String(id) },
    )
  ).map(({ action }) => action);

test("a run goes on for a probe that was chosen since it last claimed, and not for one that is claimed or not due", async () => {
  await opened(2);
  expect(await areDeliveriesExpected(db)).toBe(false);
  await letPass(300);
  await decided();
  expect(await areDeliveriesExpected(db)).toBe(true);
  expect(await claim()).toHaveLength(1);
  expect(await areDeliveriesExpected(db)).toBe(false);
});

test("a breaker opens after enough failures in a row that have lasted long enough, and no sooner", async () => {
  const id = await withBreaker(10);
  const deliveries = await claim();
  expect(await answer(deliveries.slice(0, 5), 503)).toEqual([]);
  await letPass(SETTINGS.failingSeconds - 5);
  expect(await answer(deliveries.slice(5, 6), 503)).toEqual([]);
  await letPass(5);
  // Time alone is no evidence.
  expect(await decided()).toEqual([]);
  expect(await answer(deliveries.slice(6, 7), 503)).toEqual([
    {
      webhookId: id,
      targetUrl: (await webhookOf(id)).targetUrl,
      was: "closed",
      state: "open",
      reason: "7 attempts in a row have failed, over 30 minutes",
    },
  ]);
  const { paused, breaker } = await webhookOf(id);
  expect(paused).toBeNull();
  expect(breaker).toMatchObject({ state: "open", failedAttempts: 7, settings: SETTINGS });
  expect(
    new Date(breaker?.nextProbe as string).getTime() - new Date(breaker?.since as string).getTime(),
  ).toBe(60_000);
  expect(await entries(id)).toEqual(["webhook_breaker_opened"]);
});

test("a success in between starts the count and the time anew", async () => {
  const id = await withBreaker(10);
  const deliveries = await claim();
  await answer(deliveries.slice(0, 5), 503);
  await letPass(3_600);
  await answer(deliveries.slice(5, 6), 200);
  expect(await answer(deliveries.slice(6, 9), 503)).toEqual([]);
  expect(await breakerOf(id)).toMatchObject({ state: "closed", failedAttempts: 3, reason: null });
  await letPass(1_800);
  expect(await answer(deliveries.slice(9), 503)).toMatchObject([{ state: "open" }]);
});

test("webhooks without a breaker, and those that answer well, cost no write", async () => {
  await queue(db, 5);
  const id = await withBreaker(5);
  const version = async () => rows(db, "select xmin::text, ctid::text from webhook_breakers");
  const before = await version();
  await answer(await claim(), 200);
  expect(await version()).toEqual(before);
  expect(await breakerOf(id)).toMatchObject({ state: "closed", failedAttempts: 0 });
});

test("while it is open deliveries wait, and one at a time goes out as a probe, the oldest first", async () => {
  const id = await opened(5);
  expect(await claim()).toEqual([]);
  await letPass(60);
  // Several processes decide at once.
  await Promise.all(Array.from({ length: 8 }, () => decideBreakers(db, 30)));
  const claims = (await Promise.all(Array.from({ length: 4 }, () => claim()))).flat();
  const oldest = await rows<{ id: string }>(
    db,
    "select id from queue where webhook_id = :id::bigint order by id",
    { id },
  );
  // Of all that wait, those that have failed before are older, but not due yet.
  expect(claims.map((delivery) => delivery.id)).toEqual([oldest[0]?.id]);
  await letPass(3_600);
  await Promise.all(Array.from({ length: 8 }, () => decideBreakers(db, 30)));
  expect(await claim()).toEqual([]);
  await answer(claims, 503);
  await letPass(600);
  await decided();
  expect((await claim()).map((delivery) => delivery.id)).toEqual([oldest[1]?.id]);
  await expectBalanced();
});

test("the interval between probes doubles up to five minutes", async () => {
  const id = await opened(5);
  const seen: number[] = [];
  for (let n = 0; n < 4; n += 1) {
    await answer(await probe(), 503);
    const [row] = await rows<{ seconds: number }>(
      db,
      "select round(extract(epoch from next_probe - now()))::int as seconds from webhook_breakers",
    );
    seen.push(row?.seconds ?? 0);
  }
  expect(seen).toEqual([120, 240, 300, 300]);
  expect(await breakerOf(id)).toMatchObject({ state: "open", failedAttempts: 7 });
});

test("when a probe succeeds the breaker closes, and what waited can be claimed, oldest first", async () => {
  const id = await opened(5);
  const sent = await probe();
  expect(sent).toHaveLength(1);
  expect(await answer(sent, 200)).toMatchObject([
    { webhookId: id, was: "open", state: "closed", reason: null },
  ]);
  const waiting = await claim();
  expect(waiting).toHaveLength(4);
  expect(waiting.map((delivery) => delivery.id)).toEqual(waiting.map((delivery) => delivery.id).sort());
  expect(await webhookOf(id)).toMatchObject({
    paused: null,
    breaker: { state: "closed", failedAttempts: 0, nextProbe: null, reason: null },
  });
  expect(await entries(id)).toEqual(["webhook_breaker_opened", "webhook_breaker_closed"]);
  await expectBalanced();
});

test("a delivery that waits for a retry is the probe when nothing else waits: one attempt, once it is due, by its run", async () => {
  const id = await withBreaker(3);
  const claimant = await freshClaimant(db);
  const { deliveries: failing } = await claimPending(db, claimant, ALL);
  await answer(failing.slice(0, 2), 503, NO_WAIT);
  await letPass(1_800);
  await answer(failing.slice(2), 503, NO_WAIT);
  const retry = async () => {
    await leavePaused(db, claimant.runId);
    await adoptRetries(db, claimant.runId);
    return assignGroups(db, claimant.runId);
  };
  const group = { group: 1, limit: 10, excluded: [] };
  expect(await retry()).toEqual([]);
  await letPass(60);
  await decided();
  expect(await retry()).toMatchObject([{ webhookId: id, deliveries: 1, isProbe: true }]);
  const status = () => groupStatuses(db, [{ runId: claimant.runId, group: 1 }]);
  expect(await status()).toMatchObject([{ open: 1 }]);
  const { deliveries } = await claimGroup(db, claimant, group);
  const [first] = await rows<{ id: string }>(db, "select min(id::text) as id from retries");
  expect(deliveries.map((delivery) => delivery.id)).toEqual([first?.id]);
  // Due at once again, but it was let through for one attempt.
  await recordAttempts(
    db,
    deliveries.map((delivery) => result(delivery, 503)),
    NO_WAIT,
  );
  expect(await status()).toMatchObject([{ open: 0 }]);
  expect((await claimGroup(db, claimant, group)).deliveries).toEqual([]);
  await decided();
  expect(await retry()).toEqual([]);
  expect(await closeRun(db, claimant.runId)).toMatchObject({ open: 0 });
  await expectBalanced();
});

test("a retry that is due is the probe, though a hundred older ones are not due yet", async () => {
  const id = await withBreaker(120);
  const failing = await claim();
  await answer(failing.slice(0, 119), 503);
  await letPass(1_800);
  expect(await answer(failing.slice(119), 503, NO_WAIT)).toMatchObject([{ webhookId: id, state: "open" }]);
  await letPass(60);
  await decided();
  expect(await db("webhooks").pluck("test_delivery")).toEqual([failing[119]?.id]);
});

test("a worker that dies during a probe does not cause a second one: another worker repeats the same", async () => {
  await opened(5);
  await letPass(60);
  await decided();
  const claimant = await freshClaimant(db, 1);
  const { deliveries: lost } = await claimPending(db, claimant, ALL);
  expect(lost).toHaveLength(1);
  await db.raw("update workers set lease_until = now() - interval '1 second' where id = ?", [
    claimant.workerId,
  ]);
  await letPass(3_600);
  await endExpiredWorkers(db);
  await decided();
  const again = await claim();
  expect(again.map(({ id }) => id)).toEqual(lost.map(({ id }) => id));
  await answer(again, 503);
  // The late result of the first one finds no claim.
  expect(
    (
      await recordAttempts(
        db,
        lost.map((delivery) => result(delivery, 200)),
        SPACING,
      )
    ).size,
  ).toBe(0);
  await expectBalanced();
});

test("a filtered probe makes room for the next one, but not if another worker has claimed it since", async () => {
  await opened(5);
  await letPass(60);
  await decided();
  const claimant = await freshClaimant(db);
  const { deliveries: first } = await claimPending(db, claimant, ALL);
  await db.raw("delete from workers where id = ?", [claimant.workerId]);
  const again = await claim();
  expect(again.map(({ id }) => id)).toEqual(first.map(({ id }) => id));
  // The claim was lost by then.
  await endFiltered(db, claimant.workerId, first);
  await letPass(3_600);
  await decided();
  expect(await claim()).toEqual([]);
  await endFiltered(db, again[0]?.token.workerId as number, again);
  await decided();
  const next = await claim();
  expect(next).toHaveLength(1);
  expect(next[0]?.id).not.toBe(first[0]?.id);
  await expectBalanced();
});

test("without waiting deliveries there is no probe, and the next event is one", async () => {
  const id = await opened(1);
  await answer(await probe(), 503);
  await letPass(3_600);
  await decided();
  expect(await claim()).toEqual([]);
  await db.raw("delete from retries");
  await letPass(3_600);
  await decided();
  await db.raw(
    `with e as (insert into events (id, api_key_id, idempotency_key, process, user_id, occurred, recipients, payload)
        select new_event_id(), gen_random_uuid(), 'k', 1, 'u', now(), 1, '{}' returning id)
      insert into queue (id, event_id, webhook_id) select new_delivery_id(e.id), e.id, ?::bigint from e`,
    [String(id)],
  );
  expect(await claim()).toEqual([]);
  await letPass(60);
  await decided();
  expect(await claim()).toHaveLength(1);
});

test("a test event is sent while the breaker is open, and its success closes it", async () => {
  const id = await opened(5);
  const event = { apiKeyId: (await webhookOf(id)).apiKeyId, webhookId: id, process: 1, payload: "{}" };
  const made = await queueTestEvent(db, "everything", event);
  // The time of the next probe comes meanwhile.
  await letPass(3_600);
  await decided();
  const claimed = await claim();
  expect(claimed.map((delivery) => delivery.id)).toEqual([made?.deliveryId]);
  expect(await answer(claimed, 200)).toMatchObject([{ state: "closed" }]);
  expect(await claim()).toHaveLength(5);
});

test("the retry of a test event waits while the webhook is paused", async () => {
  const id = await queue(db, 0);
  await updateWebhook(db, "everything", id, { paused: true });
  const event = { apiKeyId: (await webhookOf(id)).apiKeyId, webhookId: id, process: 1, payload: "{}" };
  await queueTestEvent(db, "everything", event);
  await answer(await claim(), 503, NO_WAIT);
  const { runId } = await freshClaimant(db);
  expect(await adoptRetries(db, runId)).toBe(0);
});

test("a user who pauses an open webhook takes over: no probes; resumed, it counts anew", async () => {
  const id = await opened(5);
  const paused = await updateWebhook(db, "everything", id, { paused: true });
  expect(paused?.before.breaker?.state).toBe("open");
  expect(paused?.webhook).toMatchObject({
    paused: expect.any(Date),
    breaker: { state: "closed", failedAttempts: 0 },
  });
  await letPass(3_600);
  await decided();
  expect(await claim()).toEqual([]);
  await updateWebhook(db, "everything", id, { paused: false });
  const sent = await claim();
  expect(sent).toHaveLength(5);
  expect(await answer(sent, 503)).toEqual([]);
  expect(await breakerOf(id)).toMatchObject({ state: "closed", failedAttempts: 5 });
});

test("a webhook that a user has paused is not opened by what is still under way", async () => {
  const id = await withBreaker(5);
  const sent = await claim();
  await answer(sent.slice(0, 3), 503);
  await letPass(1_800);
  await updateWebhook(db, "everything", id, { paused: true });
  expect(await answer(sent.slice(3), 503)).toEqual([]);
  expect((await webhookOf(id)).paused).not.toBeNull();
});

test.each([
  ["resuming the webhook", { paused: false }],
  ["removing the breaker", { breaker: null }],
])("%s sends what an open breaker held back", async (_what, change) => {
  const id = await opened(5);
  await probe();
  const changed = await updateWebhook(db, "everything", id, change);
  expect(changed?.webhook.paused).toBeNull();
  expect((changed?.webhook.breaker ?? { state: "closed" }).state).toBe("closed");
  // All but the probe, which is still under way.
  expect(await claim()).toHaveLength(4);
});

test("other changes leave an open breaker open, and new settings apply at once", async () => {
  const id = await opened(5);
  const renamed = await updateWebhook(db, "everything", id, { name: "Shop" });
  expect(renamed?.webhook).toMatchObject({ name: "Shop", paused: null, breaker: { state: "open" } });
  const { webhook } = (await updateWebhook(db, "everything", id, {
    breaker: { ...SETTINGS, probeSeconds: 1 },
  })) as { webhook: WebhookRow };
  expect(webhook.breaker).toMatchObject({ state: "open", settings: { probeSeconds: 1 } });
  await letPass(1);
  await decided();
  expect(await claim()).toHaveLength(1);
  const same = await updateWebhook(db, "everything", id, { breaker: { ...SETTINGS, probeSeconds: 1 } });
  expect(same?.webhook.revision).toBe(webhook.revision);
});

test("a version without breakers that resumes an open webhook closes its breaker", async () => {
  const id = await opened(5);
  await db.raw("update webhooks set paused = null, revision = revision + 1");
  expect(await breakerOf(id)).toMatchObject({ state: "closed", reason: null, nextProbe: null });
  await letPass(60);
  await decided();
  expect(await rows(db, "select state from webhook_breakers")).toEqual([{ state: "closed" }]);
  expect(await claim()).toHaveLength(5);
});

test("a deleted webhook has no breaker any more, also if it was open", async () => {
  const id = await opened(5);
  const sent = await probe();
  await deleteWebhook(db, id);
  expect(await rows(db, "select from webhook_breakers")).toEqual([]);
  expect(await answer(sent, 503)).toEqual([]);
  await expectBalanced();
  const states = await rows(db, "select outcome, count(*)::int as n from deliveries group by 1");
  expect(states).toEqual([{ outcome: "cancelled", n: 8 }]);
});

test("410 Gone of the URL before a change does not disable the webhook", async () => {
  const id = await withBreaker(1, { disableOnGone: true });
  const moveTo = (url: string) => updateWebhook(db, "everything", id, { address: { url, targetUrl: url } });
  const { targetUrl: first } = await webhookOf(id);
  await noteGone(db, id, first);
  const second = "https://example.com/second";
  await moveTo(second);
  expect(await decided()).toEqual([]);
  // A request to the old URL was in flight.
  await noteGone(db, id, first);
  expect(await decided()).toEqual([]);
  await noteGone(db, id, second);
  expect(await decided()).toMatchObject([{ webhookId: id, state: "disabled" }]);
});

test("410 Gone disables a webhook that has chosen it, and no other", async () => {
  const [chosen, other] = [await withBreaker(3, { disableOnGone: true }), await withBreaker(3)];
  const sent = await claim();
  for (const id of [chosen, other]) await noteGone(db, id, (await webhookOf(id)).targetUrl);
  const changes = await answer(sent.slice(0, 2), 410);
  expect(changes).toMatchObject([
    { webhookId: chosen, was: "closed", state: "disabled", reason: "the endpoint answered 410 Gone" },
  ]);
  expect(await breakerOf(other)).toMatchObject({ state: "closed" });
  expect(await breakerOf(chosen)).toMatchObject({ state: "disabled", nextProbe: null });
  expect(await entries(chosen)).toEqual(["webhook_disabled"]);
  // What is still under way changes nothing, also when it succeeds.
  expect(await answer(sent.slice(2), 200)).toEqual([]);
  await letPass(86_400);
  expect(await decided()).toEqual([]);
  expect((await breakerOf(chosen)).state).toBe("disabled");
});

test("a webhook is disabled by a probe that fails after days of failures, and works once a user resumes it", async () => {
  const id = await opened(5);
  await letPass(SETTINGS.disableSeconds);
  // Without an attempt nothing is known.
  expect(await decided()).toEqual([]);
  const sent = await claim();
  expect(sent).toHaveLength(1);
  expect(await answer(sent, 503)).toMatchObject([
    { webhookId: id, was: "open", state: "disabled", reason: "no attempt has succeeded for 5 days" },
  ]);
  expect(await probe()).toEqual([]);
  const { webhook } = (await updateWebhook(db, "everything", id, { paused: false })) as {
    webhook: WebhookRow;
  };
  expect(webhook).toMatchObject({ paused: null, breaker: { state: "closed", failedAttempts: 0 } });
  const waiting = await claim();
  expect(waiting).toHaveLength(4);
  await answer(waiting, 503);
  expect((await breakerOf(id)).state).toBe("closed");
});

/** Ends deliveries as failed: three more attempts each. */
async function fail(deliveries: readonly ClaimedDelivery[]): Promise<void> {
  for (let n = 0; n < 4; n += 1) {
    const { runId, workerId } = await freshClaimant(db);
    const ids = deliveries.map(({ id }) => id);
    const tokens = await rows<{ id: string; webhook_id: bigint; attempts: number }>(
      db,
      "update retries set claimed_by = :workerId::int, run_id = :runId::int where id = any(:ids::uuid[]) returning id, webhook_id, attempts",
      { workerId, runId, ids },
    );
    const claimed = tokens.map(({ id, webhook_id, attempts }) => ({
      id,
      webhook: { id: webhook_id },
      token: { workerId, attempts, table: "retries" },
    }));
    await recordAttempts(
      db,
      claimed.map((each) => result(each as ClaimedDelivery, 503)),
      NO_WAIT,
    );
  }
}

test.each([true, false])(
  "what failed in the outage is sent again after it, if that was chosen: %s",
  async (resendFailed) => {
    const id = await withBreaker(8, { resendFailed });
    const sent = await claim();
    // Before the outage, with a success after it.
    await answer(sent.slice(0, 1), 503, NO_WAIT);
    await fail(sent.slice(0, 1));
    await answer(sent.slice(1, 2), 200);
    await letPass(600);
    await answer(sent.slice(2, 5), 503, NO_WAIT);
    await letPass(1_800);
    await fail(sent.slice(2, 5));
    expect(await decided()).toMatchObject([{ state: "open" }]);
    await answer(sent.slice(5, 7), 503);
    await letPass(60);
    expect(await answer(sent.slice(7), 200)).toMatchObject([{ state: "closed" }]);
    const again = await claim();
    const chosen = resendFailed
      ? sent
          .slice(2, 5)
          .map((delivery) => delivery.id)
          .sort()
      : [];
    expect(again.map((delivery) => delivery.id)).toEqual(chosen);
    expect(again.every(({ token }) => token.attempts >= 4)).toBe(true);
    const actions = ["webhook_breaker_opened", "webhook_breaker_closed"];
    expect(await entries(id)).toEqual(resendFailed ? [...actions, "deliveries_sent_again"] : actions);
    await expectBalanced();
    // Only once.
    await answer(again, 503, NO_WAIT);
    await fail(again);
    await decided();
    expect(await claim()).toEqual([]);
  },
);

/** A webhook whose breaker has opened and sends again what failed: by default more than two steps. One delivery waits. */
async function openedWithManyFailed(failed = 1_199): Promise<bigint> {
  const id = await withBreaker(failed + 1, { resendFailed: true, failingSeconds: 1 });
  const sent = await claim(failed);
  await answer(sent, 503, NO_WAIT);
  await fail(sent);
  await letPass(5);
  await decided();
  return id;
}

/** Lets what is sent again succeed, step by step; answers the sizes of the steps. */
async function sendAll(maxPending = 0): Promise<number[]> {
  const sizes: number[] = [];
  for (let again = await claim(); again.length > 0; again = await claim()) {
    sizes.push(again.length);
    await record(again, 200);
    await letPass(1);
    await decided(maxPending);
  }
  return sizes;
}

test("thousands of failed deliveries are sent again, the next 500 when the last ones are attempted, each of them once", async () => {
  const id = await openedWithManyFailed();
  expect((await breakerOf(id)).state).toBe("open");
  expect(await answer(await probe(), 200)).toMatchObject([{ state: "closed" }]);
  await letPass(1);
  await decided();
  // A run waits for the next step.
  expect(await areDeliveriesExpected(db)).toBe(true);
  expect(await sendAll()).toEqual([500, 500, 199]);
  expect(await areDeliveriesExpected(db)).toBe(false);
  expect(await entries(id)).toEqual([
    "webhook_breaker_opened",
    "webhook_breaker_closed",
    ...Array(3).fill("deliveries_sent_again"),
  ]);
  await expectBalanced();
});

test("no more failed deliveries are sent again than may be pending: neither they nor new ones fail as queue full", async () => {
  await openedWithManyFailed(50);
  await record(await probe(), 200);
  await decided(20);
  expect(await endBeyond(db, 20, 1_000)).toBe(0);
  expect(await sendAll(20)).toEqual([20, 20, 10]);
  expect(await db("deliveries").where({ outcome: "failed" }).pluck("id")).toEqual([]);
});

test("while failed deliveries are sent again, the breaker opens if these fail; the rest is sent after the outage", async () => {
  const id = await openedWithManyFailed();
  await record(await probe(), 200);
  expect(await decideBreakers(db, 30)).toMatchObject({ changes: [{ state: "closed" }] });
  // One step.
  await decideBreakers(db, 30);
  const again = await claim(3);
  expect(again.map(({ token }) => token.attempts)).toEqual([4, 4, 4]);
  await record(again.slice(0, 2), 503);
  await letPass(5);
  await record(again.slice(2), 503);
  expect(await decideBreakers(db, 30)).toMatchObject({ changes: [{ webhookId: id, state: "open" }] });
  expect(await answer(await probe(), 200)).toMatchObject([{ state: "closed" }]);
  await sendAll();
  expect(await db("deliveries").where({ outcome: "failed" }).pluck("id")).toEqual([]);
  await expectBalanced();
});

test("failed deliveries are sent again to the last one also if a user pauses and resumes the webhook meanwhile", async () => {
  const id = await openedWithManyFailed(520);
  await record(await probe(), 200);
  expect(await decideBreakers(db, 30)).toMatchObject({ changes: [{ state: "closed" }] });
  // One step.
  await decideBreakers(db, 30);
  for (const paused of [true, false]) await updateWebhook(db, "everything", id, { paused });
  await sendAll();
  expect(await db("deliveries").where({ outcome: "failed" }).pluck("id")).toEqual([]);
  await expectBalanced();
});

test("a delivery that fails in outage after outage is sent again twice at most", async () => {
  await withBreaker(4, { resendFailed: true, failures: 1, failingSeconds: 1 });
  const counts: number[] = [];
  for (let outage = 0; outage < 4; outage += 1) {
    const [first, ...others] = await claim();
    if (!first) throw new Error("a delivery was to wait");
    await answer([first], 503, NO_WAIT);
    await letPass(5);
    await fail([first]);
    await decided();
    await answer(others.slice(0, 1), 200);
    const [row] = await rows<{ n: number }>(db, "select count(*)::int as n from queue where id = :id::uuid", {
      id: first.id,
    });
    counts.push(row?.n ?? 0);
    // The others wait for the next outage.
    await db.raw("update queue set claimed_by = null");
    if (counts.at(-1) === 0) break;
  }
  expect(counts).toEqual([1, 1, 0]);
});
