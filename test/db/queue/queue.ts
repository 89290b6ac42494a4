import { randomBytes, randomUUID } from "node:crypto";
import { afterAll, beforeEach } from "vitest";
import { type Db, openDatabase, rows } from "../../../src/db/database.ts";
import type { Claimant, ClaimedDelivery } from "../../../src/db/queue/claims.ts";
import type { AttemptResult } from "../../../src/db/queue/results.ts";
import { openRuns } from "../../../src/db/queue/runs.ts";
import { addWorker } from "../../../src/db/queue/workers.ts";
import { createTestDatabase } from "../../support/database.ts";

/** Spacing in tests: a minute, then five times more. */
export const SPACING = { initialDelayMs: 60_000, coefficient: 5 };

/** Retries are due at once. */
export const NO_WAIT = { initialDelayMs: 0, coefficient: 1 };

/** A claim of whatever is pending. */
export const ALL = { limit: 1_000, after: 0n, excluded: [] };

/** Every table that deliveries, webhooks and runs are in. */
export const TABLES =
  "queue, retries, deliveries, attempts, events, idempotency_keys, fan_out, processes, webhooks, endpoints, workers, run_groups, runs, rollup_deltas, rollup_minutes, rollup_hours, webhook_health, webhook_breakers, replays";

/** Truncates what has rows, or had some: a truncated table gets new files, and so does each partition and index. */
const EMPTY = `do $$ declare
    filled text;
  begin
    select string_agg(c.oid::regclass::text, ', ') into filled
      from unnest('{${TABLES}}'::regclass[]) t
        cross join lateral (select t as id union select relid from pg_partition_tree(t)) of_t
        join pg_class c on c.oid = of_t.id
      where c.relkind = 'r' and pg_relation_size(c.oid) > 0;
    if filled is not null then
      execute 'truncate ' || filled || ' cascade';
    end if;
  end $$`;

/** Removes all deliveries, webhooks and runs. */
export async function empty(db: Db): Promise<void> {
  await db.raw(EMPTY);
}

/** A database of a test file's own, empty before each test. */
export async function openQueueDatabase(): Promise<Db> {
  const database = await createTestDatabase();
  const db = openDatabase(database.url, { max: 10 });
  beforeEach(() => empty(db));
  afterAll(async () => {
    await db.destroy();
    await database.drop();
  });
  return db;
}

/** Now, in whole milliseconds since 1970, by the clock that deliveries are spaced by. */
export async function databaseTime(db: Db): Promise<number> {
  const { rows } = await db.raw("select clock_timestamp() as now");
  return rows[0].now.getTime();
}

/** What is to be queued: each event for each webhook. */
export interface Wanted {
  /** A number is appended for each webhook. */
  urlPrefix: string;
  webhooks: number;
  /** The bodies are `{"N":1}` and on. */
  events: number;
  /** As stored; opens with no key unless given. */
  secret?: Buffer;
}

/** Registers webhooks of a key of their own with pending deliveries; answers their ids. */
export async function queueMany(
  db: Db,
  { urlPrefix, webhooks, events, secret = randomBytes(60) }: Wanted,
): Promise<bigint[]> {
  const key = randomUUID();
  await db.raw(
    "insert into api_keys (id, name, prefix, secret_sha256, permissions) values (?, 'k', 'p', ?, '{1}')",
    [key, randomBytes(32)],
  );
  const made = await rows<{ id: bigint }>(
    db,
    `insert into webhooks (process, url, target_url, api_key_id, secret)
      select 1, :urlPrefix || n, :urlPrefix || n, :key::uuid, :secret from generate_series(1, :webhooks::int) n
      returning id`,
    { urlPrefix, key, secret, webhooks },
  );
  await db.raw(
    `with e as (
      insert into events (id, api_key_id, idempotency_key, process, user_id, occurred, recipients, payload)
      select new_event_id(), ?::uuid, n, 1, 'u', now(), ?::int, '{"N":' || n || '}' from generate_series(1, ?::int) n
      returning id)
    insert into queue (id, event_id, webhook_id)
    select new_delivery_id(e.id), e.id, w.id from e, webhooks w where w.api_key_id = ?`,
    [key, webhooks, events, key],
  );
  return made.map(({ id }) => id);
}

/** Makes a webhook with pending deliveries; answers its id. */
export async function queue(db: Db, deliveries: number): Promise<bigint> {
  const urlPrefix = `https://example.com/${randomUUID()}/`;
  const [id] = await queueMany(db, { urlPrefix, webhooks: 1, events: deliveries });
  return id as bigint;
}

/** Makes an endpoint of webhooks, with the tokens of a second and a rate limit for all together; answers its id. */
export async function makeEndpoint(
  db: Db,
  webhookIds: readonly bigint[],
  rateLimit: number,
): Promise<string> {
  const [made] = await rows<{ id: string }>(
    db,
    "insert into endpoints (rate_at) values (now() - interval '1 hour') returning id",
  );
  const { id } = made as { id: string };
  await db("webhooks").whereIn("id", webhookIds).update({ endpoint_id: id, rate_limit: rateLimit });
  return id;
}

/** A worker with a task queue of its own; answers its id. */
export function freshWorker(db: Db, name: string, leaseMs: number): Promise<number> {
  return addWorker(db, { name, taskQueue: `worker-${randomUUID()}`, leaseMs });
}

/** A fresh worker in a fresh run. @param leaseMs of both */
export async function freshClaimant(db: Db, leaseMs = 60_000): Promise<Claimant> {
  const [runId] = await openRuns(db, [{ workflowId: randomUUID(), firstRunId: randomUUID(), leaseMs }]);
  return { runId: runId as number, workerId: await freshWorker(db, "test", leaseMs) };
}

/** The result of an attempt of a claimed delivery. */
export function result({ id, webhook, token }: ClaimedDelivery, status: number): AttemptResult {
  return {
    deliveryId: id,
    webhookId: webhook.id,
    token,
    delivered: status < 300,
    started: new Date(),
    durationMs: 5,
    status,
    error: null,
    responseStart: "answer",
    signature: status < 300 ? null : "v1,c2lnbmF0dXJl",
    responseHeaders: status < 300 ? null : '["retry-after","1"]',
    retryAfterMs: null,
  };
}

/** State and counters of deliveries, by id. */
export function stored(
  db: Db,
  ids: readonly string[],
): Promise<
  { state: string; attempts: number; claims: number; reason: string | null; run_id: number | null }[]
> {
  return rows(
    db,
    "select state, attempts, claims, reason, run_id from all_deliveries where id = any(:ids::uuid[]) order by id",
    { ids },
  );
}
