import { randomUUID } from "node:crypto";
import type { Knex } from "knex";
import { beforeEach, onTestFinished } from "vitest";
import { rows } from "../../src/lib/pg/database.ts";
import { type RetentionStep, retentionStep } from "../../src/retention/retention.ts";
import {
  ensurePartitions,
  listPartitions,
  PARTITIONED,
  type Partitioned,
} from "../../src/schema/partitions.ts";
import { openQueueDatabase } from "../queue/queue.ts";
import { idAt, type Stored, storeDeliveries } from "../support/stored-deliveries.ts";

export const DAY_MS = 86_400_000;
/** Partitions are dropped a week later. */
export const RETENTION_DAYS = 30;

/** What tests of the retention share, on the empty database of the worker. */
export async function useRetention() {
  const db = await openQueueDatabase();
  /** Only partitions of the past are dropped: the others take a tenth of a second to create. */
  beforeEach(async () => {
    const [past] = await rows<{ names: string | null }>(
      db,
      `select string_agg(relname, ', ') as names from pg_class
        where relkind = 'r' and relname ~ '^(${PARTITIONED.join("|")})_[0-9]+_[0-9]+$'
          and substring(relname from '_([0-9]+)_[0-9]+$') < to_char(now() - interval '1 day', 'YYYYMMDD')`,
    );
    if (past?.names) await db.raw(`drop table ${past.names}`);
    await ensurePartitions(db, RETENTION_DAYS);
  });

  /** A transaction of somebody else, with a statement; ended with the test. */
  async function begin(sql: string): Promise<Knex.Transaction> {
    const other = await db.transaction();
    onTestFinished(async () => {
      if (!other.isCompleted()) await other.rollback();
    });
    await other.raw(sql);
    return other;
  }

  /** Locks a partition as VACUUM and CREATE INDEX CONCURRENTLY do. */
  const maintain = (partition: string) => begin(`lock table ${partition} in share update exclusive mode`);

  const daysAgo = (days: number) => new Date(Date.now() - days * DAY_MS);

  /** An event of a moment, under the idempotency key `key`, with a delivery: delivered at once unless given. */
  async function storeEvent(created: Date, delivery: Partial<Stored> = {}, key: string = randomUUID()) {
    const [eventId, apiKeyId] = [idAt(created), randomUUID()];
    const delivered = { state: "delivered", attempts: 1, finished: created, webhookId: 1n } as const;
    const [deliveryId = ""] = await storeDeliveries(db, [{ ...delivered, created, eventId, ...delivery }]);
    const ids = { api_key_id: apiKeyId, idempotency_key: key };
    const event = { ...ids, id: eventId, process: 1, user_id: "u", occurred: created, recipients: 1 };
    await db("events").insert({ ...event, payload: "{}" });
    await db("idempotency_keys").insert({ ...ids, event_id: eventId, request_sha256: Buffer.alloc(32) });
    return { eventId, apiKeyId, deliveryId };
  }

  /** Stores the given number of events that were created at the same time, with their idempotency keys. */
  async function storeKeys(created: Date, events: number): Promise<void> {
    await db.raw(
      `with e as (
          insert into events (id, api_key_id, idempotency_key, process, user_id, occurred)
          select overlay(?::text placing lpad(n::text, 12, '0') from 25)::uuid, gen_random_uuid(), n, 1, 'u', now()
          from generate_series(1, ?::int) n returning id, api_key_id, idempotency_key
        )
        insert into idempotency_keys (event_id, api_key_id, idempotency_key, request_sha256)
        select id, api_key_id, idempotency_key, '\\x00' from e`,
      [idAt(created, 0), events],
    );
  }

  /** Steps until nothing is left to do. */
  async function retain(on = db): Promise<RetentionStep[]> {
    const steps: RetentionStep[] = [];
    for (;;) {
      const step = await retentionStep(on, on, RETENTION_DAYS);
      if (step.expired + step.keys + step.runs + step.partitions.length === 0) return steps;
      steps.push(step);
    }
  }

  const retainAndDrop = async () => (await retain()).flatMap(({ partitions }) => partitions);

  /** The partition of a day. */
  function partitionOf(table: Partitioned, created: Date): string {
    const day = (at: number) => new Date(at).toISOString().slice(0, 10).replaceAll("-", "");
    return `${table}_${day(created.getTime())}_${day(created.getTime() + DAY_MS)}`;
  }

  const allPartitionsOf = (created: Date) => PARTITIONED.map((table) => partitionOf(table, created));

  /** The partitions of a day that are attached. */
  async function attachedOf(created: Date): Promise<string[]> {
    const attached = (await Promise.all(PARTITIONED.map((table) => listPartitions(db, table)))).flat();
    return attached.map(({ name }) => name).filter((name) => allPartitionsOf(created).includes(name));
  }

  const isThere = (table: string) =>
    rows(db, "select where to_regclass(:table) is not null", { table }).then(({ length }) => length === 1);

  const stored = { db, begin, maintain, daysAgo, storeEvent, storeKeys, retain, retainAndDrop };
  return { ...stored, partitionOf, allPartitionsOf, attachedOf, isThere };
}
