import { randomBytes, randomUUID } from "node:crypto";
import { afterAll, beforeEach } from "vitest";
import type { ClaimedDelivery, ClaimToken } from "../../src/db/claim-statement.ts";
import { type Db, openDatabase, rows } from "../../src/db/database.ts";
import type { AttemptResult } from "../../src/db/delivery-results.ts";
import { openRuns } from "../../src/db/runs.ts";
import { createTestDatabase } from "../support/database.ts";

/** Spacing in tests: a minute, then five times more. */
export const SPACING = { initialDelayMs: 60_000, coefficient: 5 };

/** A claim of whatever is pending. */
export const ALL = { limit: 1_000, after: 0n, excluded: [] };

/** A database of a test file's own, empty before each test. */
export async function openQueueDatabase(): Promise<Db> {
  const database = await createTestDatabase();
  const db = openDatabase(database.url, { max: 10 });
  beforeEach(() => db.raw("truncate deliveries, attempts, events, webhooks, run_groups, runs cascade"));
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
      insert into events (id, api_key_id, idempotency_key, request_sha256, process, user_id, occurred, payload)
      select new_delivery_id(), ?::uuid, n, '\\x00'::bytea, 1, 'u', now(), '{"N":' || n || '}' from generate_series(1, ?::int) n
      returning id)
    insert into deliveries (event_id, webhook_id) select e.id, w.id from e, webhooks w where w.api_key_id = ?`,
    [key, events, key],
  );
  return made.map(({ id }) => id);
}

/** Makes a webhook with pending deliveries; answers its id. */
export async function queue(db: Db, deliveries: number): Promise<bigint> {
  const urlPrefix = `https://example.com/${randomUUID()}/`;
  const [id] = await queueMany(db, { urlPrefix, webhooks: 1, events: deliveries });
  return id as bigint;
}

/** A claim token of a fresh run. */
export async function freshToken(db: Db, leaseMs = 60_000): Promise<ClaimToken> {
  const [runId] = await openRuns(db, [{ workflowId: randomUUID(), firstRunId: randomUUID(), leaseMs }]);
  return { runId: runId as bigint, activity: randomUUID(), attempt: 1 };
}

/** The result of an attempt under a token. */
export function result(delivery: ClaimedDelivery | string, token: ClaimToken, status: number): AttemptResult {
  return {
    deliveryId: typeof delivery === "string" ? delivery : delivery.id,
    token,
    delivered: status < 300,
    started: new Date(),
    durationMs: 5,
    status,
    error: null,
    responseStart: "answer",
    retryAfterMs: null,
  };
}

/** State and counters of deliveries, by id. */
export function stored(
  db: Db,
  ids: readonly string[],
): Promise<
  { state: string; attempts: number; claims: number; reason: string | null; run_id: bigint | null }[]
> {
  return rows(
    db,
    "select state, attempts, claims, reason, run_id from deliveries where id = any(:ids::uuid[]) order by id",
    { ids },
  );
}
