import { randomUUID } from "node:crypto";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import type { Scope } from "../../src/calls/scope.ts";
import { erasePayloads } from "../../src/events/erase.ts";
import { type Published, publishEvents } from "../../src/events/publish.ts";
import { type Db, rows } from "../../src/lib/pg/database.ts";
import { changeReplay, getReplay, insertReplay, type NewReplay } from "../../src/replays/replays.ts";
import { endReplay, keepReplay, type RunningReplay } from "../../src/replays/running.ts";
import { findReady, listWebhooksOf, stepWebhook } from "../../src/replays/steps.ts";
import { timeOfId } from "../../src/schema/partitions.ts";
import { openQueueDatabase } from "../queue/queue.ts";
import { aKey, aWebhook } from "../support/builders.ts";
import { databaseTime } from "../support/database-time.ts";
import { waitingQueries } from "../support/grpc-calls.ts";
import { imbalance, readLedger } from "../support/ledger.ts";
import { anEvent } from "../support/new-event.ts";
import { idBeside, type Stored, storeDeliveries } from "../support/stored-deliveries.ts";
import { until } from "../support/wait.ts";

const db = await openQueueDatabase();
/** Events count as stored at once. */
const LIMITS = { retentionDays: 30, settledMs: -60_000 };
const HOUR_MS = 3_600_000;
const ago = (ms: number) => new Date(Date.now() - ms);
let apiKeyId: string;

beforeEach(async () => {
  apiKeyId = (await aKey().in(db)).id;
});
afterEach(() => {
  vi.useRealTimers();
});

const webhook = (columns: Record<string, unknown> = {}) => aWebhook(columns).ownedBy(apiKeyId).in(db);
/** Stores failed deliveries of a webhook, a second apart; returns their ids, oldest first. */
function store(webhookId: bigint, count: number, columns: Partial<Stored> = {}): Promise<string[]> {
  const failed = { webhookId, state: "failed" as const, attempts: 4 };
  return storeDeliveries(
    db,
    Array.from({ length: count }, (_, n) => ({ ...failed, created: ago(600_000 - n * 1_000), ...columns })),
  );
}

async function start(
  filter: Partial<NewReplay["filter"]>,
  kind: NewReplay["kind"] = "resend",
  scope: Scope = "everything",
  // Later than what was stored in this millisecond.
  to: Date | "now" = new Date(Date.now() + 1_000),
): Promise<RunningReplay> {
  const states = kind === "resend" ? (["failed"] as const) : [];
  const wanted = { apiKeyId, idempotencyKey: null, kind, filter: { states, ...filter } };
  const { id } = await insertReplay(db, scope, wanted, LIMITS.retentionDays, to === "now" ? undefined : to);
  return (await keepReplay(db, id)) as RunningReplay;
}

const step = async (replay: RunningReplay, webhookId: bigint, limits = {}) =>
  (await stepWebhook(db, replay, webhookId, { ...LIMITS, ...limits }))?.queued;
const stateOf = ({ id }: RunningReplay) => getReplay(db, "everything", id);
const readyOf = async ({ id }: RunningReplay) => (await findReady(db, id)).ready;
const queuedOf = (webhookId: bigint): Promise<string[]> =>
  db("queue").where({ webhook_id: webhookId }).orderBy("id").pluck("id");

/** Makes the next step due, as if the last one had been attempted at once. */
const due = ({ id }: RunningReplay) =>
  db("replay_webhooks")
    .where({ replay_id: id })
    .update({ due: new Date(0), busy_at: null });

/** Ends queued deliveries. */
async function end(ids: readonly string[], state: "delivered" | "failed"): Promise<void> {
  const all = ["id", "event_id as eventId", "webhook_id as webhookId", "attempts", "attempts as roundStart"];
  const ended = await db("queue").whereIn("id", ids).delete().returning(all);
  await storeDeliveries(db, ended.map((each) => ({ ...(each as object), state })) as Stored[]);
}

describe("ended deliveries", () => {
  test("are queued again oldest first, in steps that grow while the endpoint is quick, each once", async () => {
    const webhookId = await webhook();
    const ids = await store(webhookId, 170);
    const replay = await start({ webhookId });
    const queued: string[] = [];
    for (const size of [20, 40, 80, 30]) {
      expect(await endReplay(db, replay.id)).toBe(false);
      await due(replay);
      expect(await readyOf(replay)).toEqual([webhookId]);
      expect(await step(replay, webhookId)).toBe(size);
      queued.push(...(await queuedOf(webhookId)));
      // Those that failed again are not examined again.
      await end(await queuedOf(webhookId), size === 80 ? "failed" : "delivered");
    }
    expect(queued).toEqual(ids);
    expect(await endReplay(db, replay.id)).toBe(true);
    const counts = { queued: 170n, skipped: 0n, progress: 1, webhooks: 1 };
    expect(await stateOf(replay)).toMatchObject({ state: "completed", ...counts });
  });

  test("wait until the step before was attempted, and the next step is smaller when that took long; none makes more pending than may be", async () => {
    const webhookId = await webhook();
    const ids = await store(webhookId, 200);
    const replay = await start({ webhookId });
    expect(await step(replay, webhookId, { maxPending: 15 })).toBe(15);
    await due(replay);
    expect(await readyOf(replay)).toEqual([]);
    expect(await step(replay, webhookId, { maxPending: 15 })).toBeUndefined();
    expect((await db("replay_webhooks").first("busy_at")).busy_at).toBeInstanceOf(Date);
    await end(ids.slice(0, 15), "failed");
    await due(replay);
    expect(await readyOf(replay)).toEqual([webhookId]);
    expect(await step(replay, webhookId)).toBe(30);
    // Two activities make no two steps of one look.
    expect(await step(replay, webhookId)).toBeUndefined();
    await end(ids.slice(15, 45), "failed");
    await db("replay_webhooks").update({ stepped: ago(20_000), busy_at: ago(10_000), due: new Date(0) });
    expect(await step(replay, webhookId)).toBe(20);
    const { progress } = (await stateOf(replay)) as { progress: number };
    expect(progress).toBeGreaterThan(0);
    expect(progress).toBeLessThan(1);
  });

  test.each([
    ["has waited for long, and leave it three times as long", 10_000, { behind: true, pause: 6 }],
    ["waits", -60_000, { behind: false, pause: 0.25 }],
  ])("are few where a first attempt %s", async (_name, age, { behind, pause }) => {
    const webhookId = await webhook();
    const ids = await store(webhookId, 100);
    const replay = await start({ webhookId });
    await step(replay, webhookId);
    await end(ids.slice(0, 20), "delivered");
    await storeDeliveries(db, [{ webhookId, created: ago(age) }]);
    const stepped = ago(10_000);
    const busyAt = new Date(stepped.getTime() + 2_000);
    await db("replay_webhooks").update({ stepped, busy_at: busyAt, due: stepped });
    expect(await stepWebhook(db, replay, webhookId, LIMITS)).toEqual({ queued: 20, behind });
    const [paused] = await db("replay_webhooks").select(
      db.raw("extract(epoch from due - stepped)::float8 as s"),
    );
    expect(paused.s).toBeCloseTo(pause);
  });

  test("are those of live webhooks in the scope with deliveries in the range and the states", async () => {
    const app = randomUUID();
    await db("installed_apps").insert({ id: app, name: "app" });
    const failed = await webhook();
    const ofApp = await webhook({ installed_app_id: app });
    const otherType = await webhook({ installed_app_id: app, process: 2 });
    for (const id of [failed, ofApp, otherType, await webhook({ deleted: new Date() })]) await store(id, 1);
    const [delivered, old] = [await webhook(), await webhook()];
    await store(delivered, 1, { state: "delivered" });
    await store(old, 1, { created: ago(HOUR_MS) });
    const listed = async (filter: Partial<NewReplay["filter"]>, scope?: Scope) => {
      const replay = await start(filter, "resend", scope);
      await listWebhooksOf(db, replay);
      return db("replay_webhooks").where({ replay_id: replay.id }).orderBy("webhook_id").pluck("webhook_id");
    };
    const from = ago(HOUR_MS / 2);
    expect(await listed({ from })).toEqual([failed, ofApp, otherType]);
    expect(await listed({})).toEqual([failed, ofApp, otherType, old]);
    expect(await listed({ process: 2 })).toEqual([otherType]);
    const some = await listed({ states: ["failed", "delivered"], from });
    expect(some).toEqual([failed, ofApp, otherType, delivered]);
    expect(
      await listed({}, { customer: null, installedAppId: app, processes: [1], permissions: [] }),
    ).toEqual([ofApp]);
  });

  test("of an event or a search are replayed over all webhooks together", async () => {
    const [one, two] = [await webhook(), await webhook()];
    const created = ago(60_000);
    const [first = ""] = await store(one, 1, { created });
    const eventId = idBeside(first);
    await db("deliveries").where({ id: first }).update({ event_id: eventId });
    await store(two, 1, { created });
    const replay = await start({ eventId });
    expect(await readyOf(replay)).toEqual([0n]);
    expect(await step(replay, 0n)).toBe(1);
    expect([await queuedOf(one), await queuedOf(two)]).toEqual([[first], []]);
    expect(await endReplay(db, replay.id)).toBe(true);
  });

  test("are skipped if their webhook is deleted, and nothing is queued once the replay is paused or cancelled", async () => {
    const webhookId = await webhook();
    await store(webhookId, 30);
    const replay = await start({ webhookId });
    await changeReplay(db, "everything", replay.id, "pause");
    expect(await step(replay, webhookId)).toBeUndefined();
    expect(await keepReplay(db, replay.id)).toBeUndefined();
    await changeReplay(db, "everything", replay.id, "resume");
    await db("webhooks").update({ deleted: new Date() });
    expect(await step(replay, webhookId)).toBe(0);
    await changeReplay(db, "everything", replay.id, "cancel");
    expect(await endReplay(db, replay.id)).toBe(false);
    expect(await stateOf(replay)).toMatchObject({ state: "cancelled", queued: 0n, skipped: 20n });
  });
});

describe("missed events", () => {
  /** Publishes events; returns their ids. */
  async function publish(count: number, process = 1): Promise<string[]> {
    const events = Array.from({ length: count }, () => anEvent({ apiKeyId, process, payload: "{}" }));
    return ((await publishEvents(db, events)) as Published[]).map(({ eventId }) => eventId);
  }
  const backfill = (webhookId: bigint, to?: "now") =>
    start({ webhookId, from: ago(2 * HOUR_MS) }, "backfill", "everything", to);
  const eventsOf = (webhookId: bigint) =>
    db("all_deliveries").where({ webhook_id: webhookId }).orderBy("event_id").pluck("event_id");

  afterEach(async () => expect(imbalance(await readLedger(db))).toBe(0n));

  test("wait while a publish may be in progress, and are left out once they are older than the retention", async () => {
    const ids = await publish(2);
    const late = await webhook();
    const replay = await backfill(late);
    expect(await step(replay, late, { settledMs: 30_000 })).toBe(0);
    expect(await endReplay(db, replay.id)).toBe(false);
    await due(replay);
    expect(await step(replay, late)).toBe(2);
    expect(await endReplay(db, replay.id)).toBe(true);
    expect(await eventsOf(late)).toEqual(ids.sort());
    const second = await webhook();
    expect(await step(await backfill(second), second, { retentionDays: -1 })).toBe(0);
  });

  /** Sets the clock of this process, not the database's, and waits until the database's has passed the time of an event. */
  async function shiftClock(byMs: number, eventId: string): Promise<void> {
    await until(async () => (await databaseTime(db)) > timeOfId(eventId));
    vi.useFakeTimers({ toFake: ["Date"], now: Date.now() + byMs });
  }

  test.each([
    ["are queued although the clock of the process is slow", -HOUR_MS, 0, 2],
    ["wait until they have settled although the clock of the process is fast", HOUR_MS, 30_000, 0],
  ])("%s", async (_name, byMs, settledMs, queued) => {
    const [, event = ""] = await publish(2);
    const late = await webhook();
    await shiftClock(byMs, event);
    const replay = await backfill(late, "now");
    expect(replay.toId > event).toBe(true);
    expect(await step(replay, late, { settledMs })).toBe(queued);
  });

  test("whose payload is being erased are awaited and skipped", async () => {
    await publish(2);
    const late = await webhook();
    const replay = await backfill(late);
    const erasing = await db.transaction();
    await erasePayloads(erasing as Db, "u", 1);
    const queued = step(replay, late);
    await expect.poll(() => waitingQueries({ context: { db } })).toBe(1);
    await erasing.commit();
    expect(await queued).toBe(1);
    const payloads = "select e.payload from queue q join events e on e.id = q.event_id";
    expect(await rows(db, payloads)).toEqual([{ payload: "{}" }]);
    expect(await stateOf(replay)).toMatchObject({ queued: 1n, skipped: 1n });
  });

  test("of a webhook whose key is revoked are not queued", async () => {
    await publish(2);
    const id = await webhook();
    const replay = await backfill(id);
    await db("api_keys").update({ revoked: new Date() });
    expect(await step(replay, id)).toBe(0);
    expect(await endReplay(db, replay.id)).toBe(true);
  });
});
