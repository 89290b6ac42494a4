import type { Db } from "../database.ts";
import { count, rows } from "../database.ts";
import { eraseOldPayloads } from "../events/erase.ts";
import { firstIdOf, listPartitions, PARTITIONED, type Partition, type Partitioned } from "../partitions.ts";
import { endExpired } from "../queue/endings.ts";
import { deleteOldRollups } from "./rollups.ts";

const DAY_MS = 86_400_000;
/** A partition is dropped so many days after the last of its deliveries has expired. */
const GRACE_DAYS = 7;
/** Rows changed by one statement: few enough that nobody waits for it. */
const STEP = 1_000;
/** Accounts of runs that did something are kept for so many days; those of empty ones for one. */
const BUSY_RUN_DAYS = 7;
/** How long a change of a partition waits for those who use the table: they wait behind it meanwhile. */
const LOCK_TIMEOUT = "200ms";

/** What one step of retention did; all zero when nothing is left to do. */
export interface RetentionStep {
  /** Open deliveries that were failed, since they are older than the retention. */
  expired: number;
  /** Old events whose payloads were erased. */
  payloads: number;
  /** Idempotency keys of events that are about to be dropped. */
  keys: number;
  runs: number;
  /** Partitions that were dropped. */
  partitions: string[];
}

/**
 * One step of retention. Payloads of events older than `payloadDays` are erased, if given. Open deliveries older than `retentionDays` end as failed; partitions are dropped a week after
 * that, when no open delivery is of their time: the log and its attempts, then the events, whose idempotency keys go
 * before them. Accounts of runs and old rollups are deleted, too.
 *
 * A partition that somebody uses for longer than 200 ms stays, and is tried again at the next call.
 *
 * @param directDb connections whose settings stay as they are set; `db` when no pooler is in between
 */
export async function retentionStep(
  db: Db,
  directDb: Db,
  retentionDays: number,
  payloadDays?: number,
): Promise<RetentionStep> {
  const [clock] = await rows<{ now: Date }>(db, "select now() as now");
  const now = (clock as { now: Date }).now.getTime();
  const step: RetentionStep = { expired: 0, payloads: 0, keys: 0, runs: 0, partitions: [] };
  step.expired = await endExpired(db, firstIdOf(new Date(now - retentionDays * DAY_MS)), STEP);
  if (step.expired > 0) return step;
  if (payloadDays !== undefined) {
    const old = firstIdOf(new Date(now - payloadDays * DAY_MS));
    step.payloads = await eraseOldPayloads(db, old, await oldestOpen(db), STEP);
    if (step.payloads > 0) return step;
  }
  step.runs = await deleteRuns(db);
  if (step.runs > 0) return step;
  const before = new Date(now - (retentionDays + GRACE_DAYS) * DAY_MS);
  await dropDetached(directDb);
  const oldest = await oldestOpen(db);
  /** Nothing from here on goes: a partition before it is in use, and its events and attempts stay with it. */
  let end = before;
  for (const table of PARTITIONED) {
    for (const partition of await listPartitions(db, table)) {
      if (partition.to > end || (oldest !== null && oldest < firstIdOf(partition.to))) break;
      if (table === "events") {
        step.keys = await deleteKeys(db, partition);
        if (step.keys > 0) return step;
      }
      await setRetained(db, firstIdOf(partition.to));
      if (await dropPartition(directDb, table, partition)) {
        step.partitions.push(partition.name);
      } else {
        end = partition.from;
        break;
      }
    }
  }
  // Hours count what the log still has.
  const [kept] = await listPartitions(db, "deliveries");
  if (kept) await deleteOldRollups(db, kept.from < before ? kept.from : before);
  return step;
}

async function deleteRuns(db: Db): Promise<number> {
  return count(
    db,
    `delete from runs where id in (
        select r.id from runs r
        where r.closed < now() - case when r.sent = 0 then interval '1 day' else make_interval(days => :busy::int) end
        order by id limit :step::int)`,
    { busy: BUSY_RUN_DAYS, step: STEP },
  );
}

/** The smallest id that is not in the log yet, an event's or a delivery's; null when nothing is open. */
async function oldestOpen(db: Db): Promise<string | null> {
  const [open] = await rows<{ id: string | null }>(
    db,
    `select min(id::text) as id from (
        (select id from queue order by id limit 1) union all (select id from retries order by id limit 1)
        union all (select event_id from fan_out order by event_id limit 1)
      ) open`,
  );
  return open?.id ?? null;
}

async function deleteKeys(db: Db, { name }: Partition): Promise<number> {
  return count(
    db,
    `delete from idempotency_keys k using (
        select e.api_key_id, e.idempotency_key, e.id from ${name} e
        where exists (
          select from idempotency_keys k
          where k.api_key_id = e.api_key_id and k.idempotency_key = e.idempotency_key and k.event_id = e.id
        ) limit :step::int
      ) old
      where k.api_key_id = old.api_key_id and k.idempotency_key = old.idempotency_key and k.event_id = old.id`,
    { step: STEP },
  );
}

/** Remembers that rows with smaller ids may be gone, before any of them goes. */
async function setRetained(db: Db, id: string): Promise<void> {
  await count(
    db,
    `insert into settings (name, value) values ('retained_from', :id)
      on conflict (name) do update set value = greatest(settings.value, excluded.value)`,
    { id },
  );
}

/** Drops partitions that were detached by a call that then died. */
async function dropDetached(db: Db): Promise<void> {
  const left = await rows<{ name: string }>(
    db,
    `select relname as name from pg_class
      where relkind = 'r' and not relispartition
        and relnamespace = (select relnamespace from pg_class where oid = 'deliveries'::regclass)
        and relname ~ '^(deliveries|attempts|events)_[0-9]{8}_[0-9]{8}$'`,
  );
  for (const { name } of left) await withLockTimeout(db, (run) => run(`drop table if exists ${name}`));
}

/**
 * Detaches a partition without locking others out, then drops it; false when somebody is in the way. A detachment that was
 * cut short is finished first.
 */
async function dropPartition(db: Db, table: Partitioned, { name, detaching }: Partition): Promise<boolean> {
  return withLockTimeout(db, async (run) => {
    await run(`alter table ${table} detach partition ${name} ${detaching ? "finalize" : "concurrently"}`);
    await run(`drop table if exists ${name}`);
  });
}

/** Changes tables without waiting long for a lock: others would wait behind it. False when somebody is in the way. */
async function withLockTimeout(
  db: Db,
  work: (run: (sql: string) => Promise<unknown>) => Promise<unknown>,
): Promise<boolean> {
  // DETACH CONCURRENTLY allows no transaction, and the time-out is that of a connection.
  const connection = await db.client.acquireConnection();
  const run = async (sql: string) => db.raw(sql).connection(connection);
  try {
    await run(`set lock_timeout = '${LOCK_TIMEOUT}'`);
    await work(run);
    return true;
  } catch (error) {
    if ((error as { code?: string }).code === "55P03") return false;
    throw error;
  } finally {
    await run("reset lock_timeout").catch(() => {});
    await db.client.releaseConnection(connection);
  }
}
