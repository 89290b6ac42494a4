import { randomUUID } from "node:crypto";
import { createNoopMeter } from "@opentelemetry/api";
import pino from "pino";
import { beforeEach, expect, onTestFinished, test } from "vitest";
import { startMaintenance } from "../../src/app/maintenance.ts";
import { erasePayloads } from "../../src/events/erase.ts";
import { openDatabase, rows } from "../../src/lib/pg/database.ts";
import { createDeliveryInstruments } from "../../src/metrics/instruments.ts";
import { claimPending } from "../../src/queue/claims.ts";
import { recordAttempts } from "../../src/queue/results.ts";
import { findLongSnapshot } from "../../src/queue/snapshots.ts";
import { updateWebhook } from "../../src/webhooks/webhook-update.ts";
import { SETTINGS } from "../breakers/breakers.ts";
import {
  ALL,
  freshClaimant,
  freshWorker,
  NO_WAIT,
  openQueueDatabase,
  queueMany,
  result,
  SPACING,
} from "../queue/queue.ts";
import { createTestDatabase } from "../support/database.ts";
import { storeDeliveries } from "../support/stored-deliveries.ts";
import { until } from "../support/wait.ts";

type Line = Record<string, unknown> & { msg: string };

const db = await openQueueDatabase();
let lines: Line[] = [];
const log = pino(
  { level: "info", base: null, timestamp: false },
  { write: (line: string) => void lines.push(JSON.parse(line)) },
);
beforeEach(() => {
  lines = [];
});

/** Maintenance as in several processes at once, until the end of the test. */
function start(processes: number, { on = db, longSnapshotS = 60, mayEndOthers = (): boolean => true } = {}) {
  const instruments = createDeliveryInstruments(createNoopMeter());
  for (let n = 0; n < processes; n += 1) {
    const lease = { ids: [], mayEndOthers };
    const delivery = { maxPendingPerWebhook: 0 };
    const dispatch = { retentionDays: 30 };
    onTestFinished(startMaintenance({ db: on, lease, log, instruments, delivery, dispatch, longSnapshotS }));
  }
}

/** Waits for lines with this message; answers them. */
async function saying(msg: string): Promise<Line[]> {
  const found = () => lines.filter((line) => line.msg === msg);
  await until(() => found().length > 0);
  return found();
}

const SECRET_URL = "https://shop.example/hooks/?token=s3cret-";

/** Claims deliveries of one webhook. @returns its id, and a function that records the next one's attempt with a status */
async function claimedOfOne(events: number) {
  const [webhookId] = await queueMany(db, { urlPrefix: SECRET_URL, webhooks: 1, events });
  const { deliveries } = await claimPending(db, await freshClaimant(db), ALL);
  const record = async (status: number) => {
    const next = deliveries.pop();
    if (next) await recordAttempts(db, [result(next, status)], SPACING);
  };
  return { webhookId: String(webhookId), record };
}

test("one process warns that a webhook is failing, whose it is and why, and logs that it has recovered", async () => {
  const { webhookId, record } = await claimedOfOne(3);
  const appId = randomUUID();
  await db("installed_apps").insert({ id: appId, name: "Shop" });
  const owned = { name: "Orders", customer: "tenant-42", installed_app_id: appId };
  await db("webhooks").where("id", webhookId).update(owned);
  start(3);
  const webhook = {
    webhookId,
    host: "shop.example",
    name: "Orders",
    application: "Shop",
    customer: "tenant-42",
  };
  await record(503);
  expect(await saying("webhook is failing")).toEqual([
    { ...webhook, level: 40, msg: "webhook is failing", since: expect.any(String), error: "HTTP status 503" },
  ]);
  await record(500);
  await record(200);
  const recovered = { ...webhook, level: 30, health: "degraded" };
  expect(await saying("webhook has recovered")).toMatchObject([recovered]);
  expect(await saying("webhook is failing")).toHaveLength(1);
  expect(JSON.stringify(lines)).not.toMatch(/hooks|s3cret/);
});

test("one process logs that a circuit breaker opened, and why, and that it closed", async () => {
  const { webhookId } = await claimedOfOne(0);
  await updateWebhook(db, "everything", BigInt(webhookId), { breaker: SETTINGS });
  const tell = (what: string) => db.raw(`update webhook_breakers set ${what}, due = now()`);
  start(3);
  const webhook = { level: 30, webhookId, host: "shop.example" };
  await tell("failures = 3, failing_since = now() - interval '1 hour'");
  const reason = "3 attempts in a row have failed, over 60 minutes";
  expect(await saying("circuit breaker opened")).toEqual([expect.objectContaining({ ...webhook, reason })]);
  await tell("succeeded = true");
  expect(await saying("circuit breaker closed")).toEqual([expect.objectContaining(webhook)]);
  expect(await saying("circuit breaker opened")).toHaveLength(1);
});

test("one process counts the overdue retries once a minute, with the hosts that have most", async () => {
  for (let host = 1; host <= 7; host += 1)
    await queueMany(db, { urlPrefix: `https://host-${host}.example/`, webhooks: 2, events: host });
  const [pausedId] = await queueMany(db, { urlPrefix: SECRET_URL, webhooks: 1, events: 1 });
  await db("webhooks").where("id", String(pausedId)).update({ paused: new Date() });
  const { deliveries } = await claimPending(db, await freshClaimant(db), ALL);
  const results = deliveries.map((each) => result(each, 500));
  await recordAttempts(db, results, NO_WAIT);
  await db.raw("update retries set due = now() - interval '16 minutes'");
  start(2);
  const [line, ...more] = await saying("retries are overdue");
  expect(more).toEqual([]);
  expect(line).toMatchObject({ level: 30, retries: 56, webhooks: 14 });
  expect(line?.hosts).toEqual(Object.fromEntries([7, 6, 5, 4, 3].map((n) => [`host-${n}.example`, 2 * n])));
  expect(line?.oldestSeconds).toBeGreaterThanOrEqual(16 * 60);
  const next = "select from settings where name = 'overdue retries logged' and value::timestamptz > now()";
  expect(await rows(db, next)).toHaveLength(1);
});

test("deliveries that were being sent while their payload was erased keep no response and are not retried", async () => {
  const { record } = await claimedOfOne(1);
  expect(await erasePayloads(db, "u", 10)).toMatchObject({ erased: 1, cancelled: 0 });
  start(2);
  await record(500);
  const stored = `select d.state, d.reason, coalesce(a.response_start, a.response_headers) as response
    from all_deliveries d join attempts a on a.delivery_id = d.id`;
  const erased = { state: "cancelled", reason: "payload erased", response: null };
  await expect.poll(() => rows(db, stored)).toEqual([erased]);
});

test("workers whose lease has expired are ended by a process that may end others", async () => {
  await freshWorker(db, "dead", -1);
  let may = false;
  start(1, { mayEndOthers: () => may });
  const { record } = await claimedOfOne(1);
  await record(503);
  // In the same round, after them.
  await saying("webhook is failing");
  const dead = () => db("workers").where({ name: "dead" });
  expect(await dead()).toHaveLength(1);
  may = true;
  await until(async () => (await dead()).length === 0);
});

test("a snapshot that is held for long is warned of with its owner and the remedy", async () => {
  const other = await db.transaction({ isolationLevel: "repeatable read" });
  onTestFinished(async () => void (await other.rollback()));
  const [session] = await rows<{ pid: number }>(other, "select pg_backend_pid() as pid");
  await until(() => findLongSnapshot(db, 0.2));
  start(1, { longSnapshotS: 0.2 });
  await until(() => lines.length > 0);
  const msg = /^long-running transaction slows deliveries.*pg_terminate_backend\(pid\)$/;
  const owner = { pid: session?.pid, application: "webhook-service-instance", state: "idle in transaction" };
  expect(lines[0]).toMatchObject({ level: 40, msg: expect.stringMatching(msg), snapshot: owner });
});

test("dead rows of the queue are removed within seconds, without autovacuum", async () => {
  // A separate database: elsewhere, a connection may report the truncation before this test only now, which resets the count of
  // dead rows.
  const database = await createTestDatabase();
  const on = openDatabase(database.url, { max: 4 });
  onTestFinished(() => on.destroy().then(database.drop));
  await on.raw("alter table queue set (autovacuum_enabled = false)");
  await on.raw(
    "insert into queue (id, event_id, webhook_id) select gen_random_uuid(), gen_random_uuid(), 1 from generate_series(1, 10000)",
  );
  // PostgreSQL otherwise counts dead rows up to ten seconds later.
  await on.raw("delete from queue; select pg_stat_force_next_flush()");
  const hasDead = async () =>
    (await rows(on, "select from pg_stat_user_tables where relname = 'queue' and n_dead_tup > 0")).length > 0;
  await until(hasDead);
  start(3, { on });
  // A statement that runs at the same time may still see the rows: then the next vacuum removes them, 15 seconds later.
  await until(async () => !(await hasDead()));
});

test("a round folds step after step until one is not full", async () => {
  const [webhookId = 0n] = await queueMany(db, { urlPrefix: SECRET_URL, webhooks: 1, events: 0 });
  await storeDeliveries(db, Array(1_000).fill({ webhookId, state: "delivered", finished: new Date() }));
  const asked: string[] = [];
  const note = ({ sql }: { sql: string }) => {
    if (sql.includes("delete from rollup_deltas")) asked.push("fold");
    if (/from settings where name = \S+ for update/.test(sql)) asked.push("the end of the round");
  };
  db.on("query", note);
  onTestFinished(() => void db.off("query", note));
  start(1);
  await until(() => asked.includes("the end of the round"));
  expect(asked.slice(0, 4)).toEqual(["fold", "fold", "fold", "the end of the round"]);
});
