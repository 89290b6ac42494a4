import { randomBytes, randomUUID } from "node:crypto";
import { beforeEach } from "vitest";
import { type Db, rows } from "../../src/lib/pg/database.ts";
import { foldDeltas } from "../../src/maintenance/fold.ts";
import {
  type Claimant,
  type ClaimedDelivery,
  claimDue,
  claimPending,
  type RetryClaim,
} from "../../src/queue/claims.ts";
import { type AttemptResult, type RetrySpacing, recordAttempts } from "../../src/queue/results.ts";
import { assignGroups } from "../../src/queue/retry-groups.ts";
import { type OpenRun, openRuns } from "../../src/queue/runs.ts";
import { addWorker } from "../../src/queue/workers.ts";
import { aKey } from "../support/builders.ts";
import { empty, useDatabase } from "../support/database.ts";

/** Spacing in tests: a minute, then five times more. */
export const SPACING = { retryInitialDelayMs: 60_000, retryBackoffCoefficient: 5, intervalMs: 60_000 };

/** Retries are due at once. */
export const NO_WAIT = { retryInitialDelayMs: 0, retryBackoffCoefficient: 1, intervalMs: 60_000 };

/** A claim of whatever is pending. */
export const ALL = { limit: 1_000, after: 0n, excluded: [] };

/** Every table that deliveries, webhooks and runs are in. */
export const TABLES =
  "queue, retries, deliveries, attempts, events, idempotency_keys, fan_out, processes, customer_processes, webhooks, endpoints, workers, run_groups, runs, rollup_deltas, rollup_minutes, rollup_hours, webhook_health, webhook_breakers, incidents, incident_webhooks, replay_steps, host_certificates, replays";

/** The database that the files of a worker share, empty before each test. */
export async function openQueueDatabase(): Promise<Db> {
  const db = await useDatabase();
  beforeEach(() => empty(db));
  return db;
}

/**
 * Registers webhooks of a key of their own with pending deliveries, each event for each webhook; answers their ids.
 *
 * @param wanted the URLs are a prefix and a number; the secret opens with no key unless given
 */
export async function queueMany(
  db: Db,
  wanted: { urlPrefix: string; webhooks: number; events: number; secret?: Buffer },
): Promise<bigint[]> {
  const { urlPrefix, webhooks, events, secret = randomBytes(60) } = wanted;
  const { id: key } = await aKey().in(db);
  const made = await rows<{ id: bigint }>(
    db,
    `insert into webhooks (process, url, target_url, api_key_id, secret)
      select 1, :urlPrefix || n, :urlPrefix || n, :key::uuid, :secret from generate_series(1, :webhooks::int) n
      returning id`,
    { urlPrefix, key, secret, webhooks },
  );
  const ids = made.map(({ id }) => id);
  await queueEvents(db, ids, events);
  return ids;
}

/** Publishes events for webhooks: each of them gets them all. The bodies are `{"N":1}` and on. */
export async function queueEvents(db: Db, webhookIds: readonly bigint[], events = 1): Promise<void> {
  await db.raw(
    `with e as (
      insert into events (id, api_key_id, idempotency_key, process, user_id, occurred, recipients, payload)
      select new_event_id(), gen_random_uuid(), n, 1, 'u', now(), ?::int, '{"N":' || n || '}' from generate_series(1, ?::int) n
      returning id)
    insert into queue (id, event_id, webhook_id) select new_delivery_id(e.id), e.id, w from e, unnest(?::bigint[]) w`,
    [webhookIds.length, events, webhookIds.map(String)],
  );
}

/** Makes a webhook with pending deliveries; answers its id. */
export async function queue(db: Db, deliveries: number): Promise<bigint> {
  const urlPrefix = `https://example.com/${randomUUID()}/`;
  const [id] = await queueMany(db, { urlPrefix, webhooks: 1, events: deliveries });
  return id as bigint;
}

/** Makes an endpoint of webhooks, with the tokens of a second and a rate limit for all together; answers its id. */
export async function makeEndpoint(db: Db, webhookIds: bigint[], rateLimit: number): Promise<string> {
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
  const [run] = await openRuns(db, [{ workflowId: randomUUID(), firstRunId: randomUUID(), leaseMs }]);
  return { runId: (run as OpenRun).id, workerId: await freshWorker(db, "test", leaseMs) };
}

/** Claims what is pending, at most so many: the deliveries. */
export async function claim(db: Db, claimant?: Claimant, limit = ALL.limit): Promise<ClaimedDelivery[]> {
  const claimed = await claimPending(db, claimant ?? (await freshClaimant(db)), { ...ALL, limit });
  return claimed.deliveries;
}

/** Claims at most `limit` due retries of the first group of the claimant's run. */
export function claimFirstGroup(
  db: Db,
  { workerId, runId }: Claimant,
  { limit = 1_000, excluded = [] as readonly bigint[] } = {},
): Promise<RetryClaim> {
  return claimDue(db, workerId, { groups: [{ runId, group: 1 }], limit, excluded });
}

/** The same: the deliveries. */
export async function claimRetries(db: Db, claimant: Claimant, limit?: number): Promise<ClaimedDelivery[]> {
  return (await claimFirstGroup(db, claimant, limit === undefined ? {} : { limit })).deliveries;
}

/** Records an attempt of each delivery. */
export function record(
  db: Db,
  deliveries: readonly ClaimedDelivery[],
  status: number,
  spacing: RetrySpacing = NO_WAIT,
): ReturnType<typeof recordAttempts> {
  const results = deliveries.map((delivery) => result(delivery, status));
  return recordAttempts(db, results, spacing);
}

/** Adds everything that was recorded to the statistics. */
export async function foldAll(db: Db): Promise<void> {
  while ((await foldDeltas(db)) > 0);
}

/** Makes the first attempt of what is pending, in vain, and puts all retries into one group; answers who did. */
export async function failFirst(db: Db, claimant?: Claimant): Promise<Claimant> {
  const by = claimant ?? (await freshClaimant(db));
  await record(db, await claim(db, by), 500);
  await assignGroups(db, by.runId);
  await db("run_groups").update({ group_number: 1 });
  return by;
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
    timing: status < 300 ? null : "1 2 3",
    retryAfterMs: null,
  };
}
