import { randomUUID } from "node:crypto";
import { createNoopMeter } from "@opentelemetry/api";
import pino from "pino";
import { afterEach, expect, test } from "vitest";
import { findLongSnapshot } from "../../src/db/connections/snapshots.ts";
import { openDatabase, rows } from "../../src/db/database.ts";
import { erasePayloads } from "../../src/db/events/erase.ts";
import { claimPending } from "../../src/db/queue/claims.ts";
import { recordAttempts } from "../../src/db/queue/results.ts";
import { createMaintenance, type Maintenance } from "../../src/delivery/maintenance.ts";
import { createDeliveryInstruments } from "../../src/metrics/instruments.ts";
import {
  ALL,
  freshClaimant,
  NO_WAIT,
  openQueueDatabase,
  queueMany,
  result,
  SPACING,
} from "../db/queue/queue.ts";
import { createTestDatabase } from "../support/database.ts";

type Line = Record<string, unknown> & { msg: string };

const db = await openQueueDatabase();
let lines: Line[] = [];
const log = pino(
  { level: "info", base: null, timestamp: false },
  { write: (line: string) => void lines.push(JSON.parse(line)) },
);
let running: Maintenance[] = [];
const ends: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  await Promise.all(running.map((one) => one.close()));
  running = [];
  for (const end of ends.splice(0)) await end();
  expect(lines.filter(({ level }) => (level as number) > 30)).toEqual([]);
  lines = [];
});

/** Maintenance as in several processes at once. */
function start(processes: number, longSnapshotS?: number, on = db): void {
  const instruments = createDeliveryInstruments(createNoopMeter());
  running = Array.from({ length: processes }, () =>
    createMaintenance(on, { ids: [], mayEndOthers: () => true }, log, instruments, 0, 30, longSnapshotS),
  );
  for (const one of running) one.start();
}

const saying = (msg: string) => lines.filter((line) => line.msg === msg);

const urlPrefix = () => `https://shop.example/hooks/${randomUUID()}?token=s3cret-`;

test("one process logs that a webhook is failing and that it has recovered, by id and host", async () => {
  const [webhookId] = await queueMany(db, { urlPrefix: urlPrefix(), webhooks: 1, events: 3 });
  const claimant = await freshClaimant(db);
  const { deliveries } = await claimPending(db, claimant, ALL);
  const record = (n: number, status: number) =>
    recordAttempts(db, [result(deliveries[n] as (typeof deliveries)[number], status)], SPACING);
  start(3);
  await record(0, 503);
  await expect.poll(() => saying("webhook is failing")).toHaveLength(1);
  await record(1, 500);
  await record(2, 200);
  await expect.poll(() => saying("webhook has recovered")).toHaveLength(1);
  expect(saying("webhook is failing")).toEqual([
    expect.objectContaining({ level: 30, webhookId: String(webhookId), host: "shop.example" }),
  ]);
  expect(saying("webhook has recovered")).toEqual([
    expect.objectContaining({ webhookId: String(webhookId), host: "shop.example", health: "degraded" }),
  ]);
  expect(JSON.stringify(lines)).not.toMatch(/hooks|s3cret/);
});

test("one process counts the overdue retries once a minute, with the hosts that have most", async () => {
  for (let host = 1; host <= 7; host += 1)
    await queueMany(db, { urlPrefix: `https://host-${host}.example/`, webhooks: 2, events: host });
  const [pausedId] = await queueMany(db, { urlPrefix: urlPrefix(), webhooks: 1, events: 1 });
  await db("webhooks").where("id", String(pausedId)).update({ paused: new Date() });
  const claimant = await freshClaimant(db);
  const { deliveries } = await claimPending(db, claimant, ALL);
  await recordAttempts(
    db,
    deliveries.map((each) => result(each, 500)),
    NO_WAIT,
  );
  await db.raw("update retries set due = now() - interval '16 minutes'");
  await db("settings").where("name", "overdue retries logged").delete();
  start(2);
  await expect.poll(() => saying("retries are overdue")).toHaveLength(1);
  const [line] = saying("retries are overdue");
  expect(line).toMatchObject({
    level: 30,
    retries: 56,
    webhooks: 14,
    hosts: {
      "host-7.example": 14,
      "host-6.example": 12,
      "host-5.example": 10,
      "host-4.example": 8,
      "host-3.example": 6,
    },
  });
  expect(Object.keys(line?.hosts as object)).toHaveLength(5);
  expect(line?.oldestSeconds).toBeGreaterThanOrEqual(16 * 60);
  const [turn] = await db("settings").where("name", "overdue retries logged");
  expect(Date.now() - Date.parse(turn?.value ?? "")).toBeLessThan(60_000);
});

test("deliveries that were being sent while their payload was erased keep no response and are not retried", async () => {
  await queueMany(db, { urlPrefix: urlPrefix(), webhooks: 3, events: 1 });
  const { deliveries } = await claimPending(db, await freshClaimant(db), ALL);
  expect(await erasePayloads(db, "u", 10)).toEqual({ erased: 1, cancelled: 0 });
  start(2);
  const record = (n: number, status: number) =>
    recordAttempts(db, [result(deliveries[n] as (typeof deliveries)[number], status)], SPACING);
  const stored = async () => {
    const { rows } = await db.raw(
      `select d.state, d.reason, a.status, a.response from all_deliveries d join (
          select id, status, coalesce(response_start, response_headers) as response from deliveries where status is not null
          union all select delivery_id, status, coalesce(response_start, response_headers) from attempts
        ) a on a.id = d.id order by a.status`,
    );
    return rows;
  };
  await record(0, 200);
  await record(1, 500);
  const cancelled = { state: "cancelled", reason: "payload erased", status: 500, response: null };
  await expect.poll(async () => (await stored())[1]).toMatchObject({ reason: "payload erased" });
  await record(2, 503);
  await expect
    .poll(stored)
    .toEqual([
      { state: "delivered", reason: null, status: 200, response: null },
      cancelled,
      { ...cancelled, status: 503 },
    ]);
  const { rows: left } = await db.raw("select from settings where name = 'payloads_erased_while_claimed'");
  expect(left).toEqual([]);
});

test("a snapshot that is held for long is warned of with its owner and the remedy", async () => {
  const other = await db.transaction({ isolationLevel: "repeatable read" });
  const { rows } = await other.raw("select pg_backend_pid() as pid");
  try {
    await expect.poll(() => findLongSnapshot(db, 0.2)).not.toBeNull();
    start(1, 0.2);
    await expect.poll(() => lines).not.toEqual([]);
  } finally {
    await other.rollback();
  }
  const [line] = lines.splice(0);
  expect(line).toMatchObject({
    level: 40,
    msg: expect.stringMatching(/^long-running transaction slows deliveries.*pg_terminate_backend\(pid\)$/),
    snapshot: {
      pid: rows[0].pid,
      user: expect.any(String),
      application: "webhook-service",
      state: "idle in transaction",
    },
  });
});

test("dead rows of the queue are removed within seconds, without autovacuum", async () => {
  // A separate database: elsewhere, a connection may report the truncation before this test only now, which resets the count of
  // dead rows.
  const database = await createTestDatabase();
  const own = openDatabase(database.url, { max: 10 });
  ends.push(() => own.destroy().then(database.drop));
  await own.raw("alter table queue set (autovacuum_enabled = false)");
  const fill = () =>
    own.raw(
      "insert into queue (id, event_id, webhook_id) select gen_random_uuid(), gen_random_uuid(), 1 from generate_series(1, 20000)",
    );
  await fill();
  // PostgreSQL otherwise counts dead rows up to ten seconds later.
  await own.raw("delete from queue; select pg_stat_force_next_flush()");
  const dead = async () => {
    const [found] = await rows<{ n: number }>(
      own,
      "select n_dead_tup::int as n from pg_stat_user_tables where relname = 'queue'",
    );
    return found?.n;
  };
  await expect.poll(dead).toBe(20_000);
  start(3, undefined, own);
  // A statement that runs at the same time may still see the rows: then the next vacuum removes them, 15 seconds later.
  await expect.poll(dead, { timeout: 40_000 }).toBe(0);
  const size = async () => {
    const [found] = await rows<{ bytes: number }>(own, "select pg_relation_size('queue')::int as bytes");
    return found?.bytes as number;
  };
  const before = await size();
  // The space of the dead rows is used again.
  await fill();
  expect(await size()).toBeLessThan(1.1 * before);
});
