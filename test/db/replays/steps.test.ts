import { randomUUID } from "node:crypto";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { rows } from "../../../src/db/database.ts";
import { imbalance, readLedger } from "../../../src/db/deliveries/ledger.ts";
import { erasePayloads } from "../../../src/db/events/erase.ts";
import { publishEvents } from "../../../src/db/events/publish.ts";
import { timeOfId } from "../../../src/db/partitions.ts";
import { changeReplay, getReplay, insertReplay, type NewReplay } from "../../../src/db/replays/replays.ts";
import { endReplay, keepReplay, type RunningReplay } from "../../../src/db/replays/running.ts";
import { findReady, listWebhooksOf, stepWebhook } from "../../../src/db/replays/steps.ts";
import type { Scope } from "../../../src/db/scope.ts";
import { waitingQueries } from "../../support/grpc-calls.ts";
import { changeDelivery, type Stored, storeDeliveries } from "../../support/stored-deliveries.ts";
import { databaseTime, openQueueDatabase } from "../queue/queue.ts";

const db = await openQueueDatabase();
/** Events count as stored at once. */
const LIMITS = { retentionDays: 30, settledMs: -60_000 };
const HOUR_MS = 3_600_000;
let apiKeyId: string;

beforeEach(async () => {
  await db.raw("truncate replays, api_keys cascade");
  apiKeyId = randomUUID();
  await db("api_keys").insert({
    id: apiKeyId,
    name: "test",
    prefix: "whk_test",
    secret_sha256: Buffer.from(apiKeyId),
    permissions: [1],
  });
});

afterEach(() => {
  vi.useRealTimers();
});

async function webhook(columns: { process?: number; installed_app_id?: string } = {}): Promise<bigint> {
  const url = `https://receiver.example/${randomUUID()}`;
  const made = {
    process: 1,
    url,
    target_url: url,
    api_key_id: apiKeyId,
    secret: Buffer.alloc(32),
    ...columns,
  };
  const [row] = await db("webhooks").insert(made).returning("id");
  return (row as { id: bigint }).id;
}

/** Stores ended deliveries of a webhook, a second apart; returns their ids, oldest first. */
function store(webhookId: bigint, count: number, columns: Partial<Stored> = {}): Promise<string[]> {
  const start = Date.now() - 600_000;
  return storeDeliveries(
    db,
    Array.from({ length: count }, (_, n) => ({
      webhookId,
      state: "failed" as const,
      attempts: 4,
      created: new Date(start + n * 1_000),
      ...columns,
    })),
  );
}

async function start(
  filter: Partial<NewReplay["filter"]>,
  kind: NewReplay["kind"] = "resend",
  scope: Scope = "everything",
): Promise<RunningReplay> {
  const states = kind === "resend" ? (["failed"] as const) : [];
  const wanted = { apiKeyId, idempotencyKey: null, kind, filter: { states, ...filter } };
  const { id } = await insertReplay(db, scope, wanted, LIMITS.retentionDays, new Date(Date.now() + 1_000));
  return (await keepReplay(db, id)) as RunningReplay;
}

const queuedOf = async (webhookId: bigint) =>
  (await db("queue")
    .where({ webhook_id: String(webhookId) })
    .orderBy("id")
    .pluck("id")) as string[];
/** Makes the next step due, as if the last one had been attempted at once. */
const due = (id: string) =>
  db("replay_webhooks")
    .where({ replay_id: id })
    .update({ due: new Date(0), busy_at: null });

/** Runs the replay to its end, ending each step's deliveries at once; returns the sizes of the steps. */
async function runToEnd(replay: RunningReplay, webhookId: bigint): Promise<number[]> {
  const sizes: number[] = [];
  for (let turn = 0; turn < 100; turn += 1) {
    if (await endReplay(db, replay.id)) return sizes;
    await due(replay.id);
    const { ready } = await findReady(db, replay.id);
    for (const each of ready) sizes.push((await stepWebhook(db, replay, each, LIMITS))?.queued ?? 0);
    for (const id of await queuedOf(webhookId)) await changeDelivery(db, id, { state: "delivered" });
  }
  throw new Error("the replay does not end");
}

describe("ended deliveries", () => {
  test("are queued again oldest first, in steps that grow while the endpoint is quick, each once", async () => {
    const webhookId = await webhook();
    await store(webhookId, 170);
    const replay = await start({ webhookId });
    expect(await runToEnd(replay, webhookId)).toEqual([20, 40, 80, 30]);
    expect(await db("all_deliveries").where({ state: "delivered", round_start: 4 })).toHaveLength(170);
    expect(await getReplay(db, "everything", replay.id)).toMatchObject({
      state: "completed",
      queued: 170n,
      skipped: 0n,
      progress: 1,
      webhooks: 1,
    });
    // Their counts are kept in its own row.
    expect(await db("replay_webhooks")).toEqual([]);
  });

  test("are queued as far as the webhook may have pending deliveries, so that neither they nor new ones fail", async () => {
    const webhookId = await webhook();
    await store(webhookId, 20);
    const replay = await start({ webhookId });
    const step = () => stepWebhook(db, replay, webhookId, { ...LIMITS, maxPending: 15 });
    expect((await step())?.queued).toBe(15);
    await due(replay.id);
    expect(await step()).toBeUndefined();
    for (const id of await queuedOf(webhookId)) await changeDelivery(db, id, { state: "delivered" });
    await due(replay.id);
    expect((await step())?.queued).toBe(5);
  });

  test("wait until the step before was attempted, and the next step is smaller when that took long", async () => {
    const webhookId = await webhook();
    const ids = await store(webhookId, 200);
    const replay = await start({ webhookId });
    expect(await findReady(db, replay.id)).toMatchObject({ ready: [webhookId] });
    await stepWebhook(db, replay, webhookId, LIMITS);
    expect(await queuedOf(webhookId)).toEqual(ids.slice(0, 20));
    await due(replay.id);
    expect((await findReady(db, replay.id)).ready).toEqual([]);
    expect((await db("replay_webhooks").first("busy_at")).busy_at).toBeInstanceOf(Date);
    for (const id of ids.slice(0, 20)) await changeDelivery(db, id, { state: "failed" });
    await due(replay.id);
    expect((await findReady(db, replay.id)).ready).toEqual([webhookId]);
    await stepWebhook(db, replay, webhookId, LIMITS);
    // Those that failed again are not examined again.
    expect(await queuedOf(webhookId)).toEqual(ids.slice(20, 60));
    // Two activities make no two steps of one look.
    expect(await stepWebhook(db, replay, webhookId, LIMITS)).toBeUndefined();
    for (const id of ids.slice(20, 60)) await changeDelivery(db, id, { state: "failed" });
    await db("replay_webhooks").update({
      stepped: new Date(Date.now() - 20_000),
      busy_at: new Date(Date.now() - 10_000),
      due: new Date(0),
    });
    await stepWebhook(db, replay, webhookId, LIMITS);
    expect(await queuedOf(webhookId)).toEqual(ids.slice(60, 80));
    const { progress } = (await getReplay(db, "everything", replay.id)) as { progress: number };
    expect(progress).toBeGreaterThan(0);
    expect(progress).toBeLessThan(1);
  });

  test.each([
    ["has waited for long, and leave it three times as long", -10_000, { behind: true, pause: 6 }],
    ["waits", 60_000, { behind: false, pause: 0.25 }],
  ])("are few where a first attempt %s", async (_name, age, expected) => {
    const webhookId = await webhook();
    const ids = await store(webhookId, 100);
    const replay = await start({ webhookId });
    await stepWebhook(db, replay, webhookId, LIMITS);
    for (const id of ids.slice(0, 20)) await changeDelivery(db, id, { state: "delivered" });
    await storeDeliveries(db, [{ webhookId, created: new Date(Date.now() + age) }]);
    const stepped = new Date(Date.now() - 10_000);
    await db("replay_webhooks").update({
      stepped,
      busy_at: new Date(stepped.getTime() + 2_000),
      due: stepped,
    });
    const { behind } = expected;
    expect(await stepWebhook(db, replay, webhookId, LIMITS)).toEqual({ queued: 20, behind });
    const [{ pause }] = (await db("replay_webhooks").select(
      db.raw("extract(epoch from due - stepped)::float8 as pause"),
    )) as [{ pause: number }];
    expect(pause).toBeCloseTo(expected.pause);
  });

  test("of a paused webhook wait, and those of another do not", async () => {
    const [paused, other] = [await webhook(), await webhook()];
    await store(paused, 5);
    await store(other, 5);
    await db("webhooks").where({ id: paused }).update({ paused: new Date() });
    const replay = await start({});
    expect(await listWebhooksOf(db, replay)).toBe(2);
    expect((await findReady(db, replay.id)).ready).toEqual([other]);
    await stepWebhook(db, replay, other, LIMITS);
    expect([await queuedOf(paused), (await queuedOf(other)).length]).toEqual([[], 5]);
    expect(await getReplay(db, "everything", replay.id)).toMatchObject({ webhooks: 2, waiting: 1 });
    expect(await endReplay(db, replay.id)).toBe(false);
    await db("webhooks").where({ id: paused }).update({ paused: null });
    await due(replay.id);
    expect((await findReady(db, replay.id)).ready).toEqual([paused]);
  });

  test("are those of live webhooks that have some in the range and the states, and of the scope", async () => {
    const app = randomUUID();
    await db("installed_apps").insert({ id: app, name: "app" });
    const [failed, delivered, old, gone, ofApp, otherType] = [
      await webhook(),
      await webhook(),
      await webhook(),
      await webhook(),
      await webhook({ installed_app_id: app }),
      await webhook({ installed_app_id: app, process: 2 }),
    ];
    for (const id of [failed, gone, ofApp, otherType]) await store(id, 1);
    await store(delivered, 1, { state: "delivered" });
    await store(old, 1, { created: new Date(Date.now() - 3_600_000) });
    await db("webhooks").where({ id: gone }).update({ deleted: new Date() });
    const listed = async (filter: Partial<NewReplay["filter"]>, scope?: Scope) => {
      const replay = await start(filter, "resend", scope);
      await listWebhooksOf(db, replay);
      return db("replay_webhooks").where({ replay_id: replay.id }).orderBy("webhook_id").pluck("webhook_id");
    };
    const from = new Date(Date.now() - 1_800_000);
    expect(await listed({ from })).toEqual([failed, ofApp, otherType]);
    expect(await listed({})).toEqual([failed, old, ofApp, otherType]);
    expect(await listed({ process: 2 })).toEqual([otherType]);
    expect(await listed({ states: ["failed", "delivered"], from })).toEqual([
      failed,
      delivered,
      ofApp,
      otherType,
    ]);
    const scope = { installedAppId: app, processes: [1], permissions: [] };
    expect(await listed({}, scope)).toEqual([ofApp]);
  });

  test("of an event or a search are replayed over all webhooks together", async () => {
    const [one, two] = [await webhook(), await webhook()];
    const eventId = "01980000-0000-7000-8000-000000000001";
    const created = new Date(Date.now() - 60_000);
    const [first = ""] = await store(one, 1, { created });
    const event = `${first.slice(0, 18)}-8000-000000000009`;
    await db("deliveries").where({ id: first }).update({ event_id: event });
    await store(two, 1, { created, eventId });
    const replay = await start({ eventId: event });
    const { ready } = await findReady(db, replay.id);
    expect(ready).toEqual([0n]);
    expect((await stepWebhook(db, replay, 0n, LIMITS))?.queued).toBe(1);
    expect([await queuedOf(one), await queuedOf(two)]).toEqual([[first], []]);
    expect(await endReplay(db, replay.id)).toBe(true);
  });

  test("are skipped where their webhook is gone, and nothing is queued once the replay is paused or cancelled", async () => {
    const webhookId = await webhook();
    await store(webhookId, 30);
    const replay = await start({ webhookId });
    await changeReplay(db, "everything", replay.id, "pause");
    expect(await stepWebhook(db, replay, webhookId, LIMITS)).toBeUndefined();
    expect(await keepReplay(db, replay.id)).toBeUndefined();
    await changeReplay(db, "everything", replay.id, "resume");
    await db("webhooks").where({ id: webhookId }).update({ deleted: new Date() });
    expect((await stepWebhook(db, replay, webhookId, LIMITS))?.queued).toBe(0);
    expect(await getReplay(db, "everything", replay.id)).toMatchObject({ queued: 0n, skipped: 20n });
    await changeReplay(db, "everything", replay.id, "cancel");
    expect(await endReplay(db, replay.id)).toBe(false);
    expect(await getReplay(db, "everything", replay.id)).toMatchObject({
      state: "cancelled",
      skipped: 20n,
      webhooks: 1,
    });
  });
});

describe("missed events", () => {
  async function publish(count: number, process = 1, payload = "{}"): Promise<string[]> {
    const events = Array.from({ length: count }, () => ({
      apiKeyId,
      idempotencyKey: randomUUID(),
      requestSha256: "00".repeat(32),
      process,
      userId: "u",
      occurred: null,
      payload,
    }));
    const published = await publishEvents(db, events);
    return published.map((each) => ("eventId" in each ? each.eventId : ""));
  }
  const ledgerIsRight = async () => expect(imbalance(await readLedger(db))).toBe(0n);

  test("are queued for a webhook once, and counted as recipients, wherever its deliveries are by then", async () => {
    const earlier = await webhook();
    const before = await publish(50);
    await publish(3, 2);
    const late = await webhook();
    const both = await publish(1);
    const from = new Date(Date.now() - 60_000);
    const replay = await start({ webhookId: late, from }, "backfill");
    expect((await stepWebhook(db, replay, late, LIMITS))?.queued).toBe(20);
    expect((await findReady(db, replay.id)).ready).toEqual([]);
    await ledgerIsRight();
    const [ended, retrying, ...others] = await queuedOf(late);
    await changeDelivery(db, ended as string, { state: "delivered" });
    await changeDelivery(db, retrying as string, { state: "retrying", attempts: 1 });
    for (const id of others) await changeDelivery(db, id, { state: "failed" });
    await due(replay.id);
    expect((await stepWebhook(db, replay, late, LIMITS))?.queued).toBe(30);
    expect(await endReplay(db, replay.id)).toBe(true);
    const events = async (webhookId: bigint) =>
      db("all_deliveries")
        .where({ webhook_id: String(webhookId) })
        .orderBy("event_id")
        .pluck("event_id");
    expect(await events(late)).toEqual([...before, ...both].sort());
    expect(await events(earlier)).toEqual([...before, ...both].sort());

    const again = await start({ webhookId: late, from }, "backfill");
    expect((await stepWebhook(db, again, late, LIMITS))?.queued).toBe(0);
    expect(await endReplay(db, again.id)).toBe(true);
    await ledgerIsRight();
  });

  test("wait while a publish may be in progress, and are left out once they are older than the retention", async () => {
    const [old = "", recent = ""] = await publish(2);
    const late = await webhook();
    const replay = await start({ webhookId: late, from: new Date(Date.now() - 60_000) }, "backfill");
    const step = async (limits: Partial<typeof LIMITS>) => {
      await due(replay.id);
      return (await stepWebhook(db, replay, late, { ...LIMITS, ...limits }))?.queued;
    };
    expect(await step({ settledMs: 30_000 })).toBe(0);
    expect(await endReplay(db, replay.id)).toBe(false);
    expect(await step({})).toBe(2);
    expect(await endReplay(db, replay.id)).toBe(true);
    expect(await db("queue").orderBy("event_id").pluck("event_id")).toEqual([old, recent].sort());

    const second = await webhook();
    const expired = await start({ webhookId: second, from: new Date(Date.now() - 60_000) }, "backfill");
    expect((await stepWebhook(db, expired, second, { ...LIMITS, retentionDays: -1 }))?.queued).toBe(0);
    await ledgerIsRight();
  });

  /** Sets the clock of this process, not the database's, and waits until the database's has passed the time of an event. */
  async function shiftClock(byMs: number, eventId: string): Promise<void> {
    await expect.poll(() => databaseTime(db)).toBeGreaterThan(timeOfId(eventId).getTime());
    vi.useFakeTimers({ toFake: ["Date"], now: Date.now() + byMs });
  }

  test("until now are part of a replay although the clock of its process is slow", async () => {
    const [event = ""] = await publish(1);
    const webhookId = await webhook();
    await shiftClock(-HOUR_MS, event);
    const replay = {
      apiKeyId,
      idempotencyKey: null,
      kind: "backfill" as const,
      filter: { webhookId, states: [] },
    };
    const { id } = await insertReplay(db, "everything", replay, LIMITS.retentionDays);
    expect((await keepReplay(db, id))?.toId).toSatisfy((toId: string) => toId > event);
  });

  test.each([
    ["are queued although the clock of the process is slow", -HOUR_MS, 0, 2],
    ["wait until they have settled although the clock of the process is fast", HOUR_MS, 30_000, 0],
  ])("%s", async (_name, byMs, settledMs, queued) => {
    const [, event = ""] = await publish(2);
    const late = await webhook();
    const replay = await start({ webhookId: late, from: new Date(Date.now() - 60_000) }, "backfill");
    await shiftClock(byMs, event);
    expect((await stepWebhook(db, replay, late, { ...LIMITS, settledMs }))?.queued).toBe(queued);
  });

  test("without a payload are skipped, test events are left out, and so is what is still fanned out to it", async () => {
    const [erased = "", test = "", fanned = "", kept = ""] = await publish(4);
    await db("events").where({ id: erased }).update({ payload: null });
    await db("events").where({ id: test }).update({ test: true });
    const late = await webhook();
    await db("fan_out").insert({ event_id: fanned, process: 1, revision: 1, remaining: 1 });
    await db("events").where({ id: fanned }).update({ recipients: 1 });
    const replay = await start({ webhookId: late, from: new Date(Date.now() - 60_000) }, "backfill");
    expect((await stepWebhook(db, replay, late, LIMITS))?.queued).toBe(1);
    expect(await db("queue").pluck("event_id")).toEqual([kept]);
    expect(await getReplay(db, "everything", replay.id)).toMatchObject({ queued: 1n, skipped: 1n });
    await ledgerIsRight();
  });

  test("whose payload is being erased are awaited and skipped", async () => {
    await publish(2);
    const late = await webhook();
    const replay = await start({ webhookId: late, from: new Date(Date.now() - 60_000) }, "backfill");
    const erasing = await db.transaction();
    await erasePayloads(erasing, "u", 1);
    const step = stepWebhook(db, replay, late, LIMITS);
    await expect.poll(() => waitingQueries({ context: { db } })).toBe(1);
    await erasing.commit();
    expect((await step)?.queued).toBe(1);
    const queued = "select e.payload from queue q join events e on e.id = q.event_id";
    expect(await rows(db, queued)).toEqual([{ payload: "{}" }]);
    expect(await getReplay(db, "everything", replay.id)).toMatchObject({ queued: 1n, skipped: 1n });
    await ledgerIsRight();
  });

  test("of a deleted webhook, or one whose key is revoked, are not queued", async () => {
    await publish(2);
    const [gone, revoked] = [await webhook(), await webhook()];
    await db("webhooks").where({ id: gone }).update({ deleted: new Date() });
    for (const webhookId of [gone, revoked]) {
      const replay = await start({ webhookId, from: new Date(Date.now() - 60_000) }, "backfill");
      if (webhookId === revoked) await db("api_keys").update({ revoked: new Date() });
      expect((await stepWebhook(db, replay, webhookId, LIMITS))?.queued).toBe(0);
      expect(await endReplay(db, replay.id)).toBe(true);
    }
    await ledgerIsRight();
  });
});
