import { deleteIdempotencyKeys, eraseOldPayloads } from "../events/index.ts";
import { count, type Db, databaseTime, rows } from "../lib/pg/index.ts";
import { deleteOldRuns, endExpired } from "../queue/index.ts";
import { firstIdOf, listPartitions, PARTITIONED, type Partition, type Partitioned } from "../schema/index.ts";
import { deleteOldRollups, takeOut } from "../stats/index.ts";
import { forgetOldUrls } from "../webhooks/index.ts";

const DAY_MS = 86_400_000;
/** The number of days between the expiry of a partition's last delivery and its drop. */
export const GRACE_DAYS = 7;
/** The maximum number of rows changed by one statement, so that no other statement waits long. */
const MAX_ROWS_PER_STATEMENT = 1_000;
/** The lock timeout for changes of partitions. Statements on the table wait behind a waiting lock. */
const LOCK_TIMEOUT = "200ms";

/** The result of one retention step; all zero if nothing is left to do. */
export interface RetentionStep {
  /** The number of open deliveries failed because they exceed the retention. */
  expired: number;
  /** The number of old events that were examined to erase their payloads. */
  payloads: number;
  /** The number of idempotency keys deleted before their events are dropped. */
  keys: number;
  runs: number;
  /** Names of dropped partitions. */
  partitions: string[];
}

/**
 * One step of retention. Erases payloads of events older than `payloadDays`, if given. Fails open deliveries older
 * than `retentionDays`. Drops partitions a week later, if no open delivery is that old: the log and its attempts,
 * then idempotency keys and events. Also deletes old run records and rollups.
 *
 * A partition that is locked for longer than LOCK_TIMEOUT is kept until the next call.
 *
 * @param directDb direct connections that keep their session settings; the same as `db` without a pooler
 * @param stop ends the work on a partition before its drop early
 */
export async function retentionStep(
  db: Db,
  directDb: Db,
  retentionDays: number,
  payloadDays?: number,
  stop?: AbortSignal,
): Promise<RetentionStep> {
  const now = (await databaseTime(db)).getTime();
  const step: RetentionStep = { expired: 0, payloads: 0, keys: 0, runs: 0, partitions: [] };
  step.expired = await endExpired(
    db,
    firstIdOf(new Date(now - retentionDays * DAY_MS)),
    MAX_ROWS_PER_STATEMENT,
  );
  if (step.expired > 0) return step;
  if (payloadDays !== undefined) {
    const old = firstIdOf(new Date(now - payloadDays * DAY_MS));
    step.payloads = await eraseOldPayloads(db, old, MAX_ROWS_PER_STATEMENT);
    if (step.payloads > 0) return step;
  }
  step.runs = await deleteOldRuns(db, MAX_ROWS_PER_STATEMENT);
  if (step.runs > 0) return step;
  const before = new Date(now - (retentionDays + GRACE_DAYS) * DAY_MS);
  await dropDetached(directDb);
  const oldest = await oldestOpen(db);
  /** The upper limit of dropped ranges: when a partition is in use, its events and attempts are kept too. */
  let end = before;
  for (const table of PARTITIONED) {
    for (const partition of await listPartitions(db, table)) {
      if (partition.to > end || (oldest !== null && oldest < firstIdOf(partition.to))) break;
      if (table === "events") {
        step.keys = await deleteIdempotencyKeys(db, partition, stop);
        if (step.keys > 0) return step;
      }
      if (table === "deliveries") await takeOut(db, partition, stop);
      if (stop?.aborted) return step;
      await setRetained(db, firstIdOf(partition.to));
      if (await dropPartition(directDb, table, partition)) {
        step.partitions.push(partition.name);
      } else {
        end = partition.from;
        break;
      }
    }
  }
  // Hourly rollups are kept as long as the log.
  const [kept] = await listPartitions(db, "deliveries");
  const keptFrom = kept && kept.from < before ? kept.from : before;
  if (kept) await deleteOldRollups(db, keptFrom);
  await forgetOldUrls(db, keptFrom);
  return step;
}

/** The smallest id of an open delivery or of an event with unfinished fan-out; null if nothing is open. */
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

/** Stores that rows with smaller ids may be missing, before any of them is dropped. */
async function setRetained(db: Db, id: string): Promise<void> {
  await count(
    db,
    `insert into settings (name, value) values ('retained_from', :id)
      on conflict (name) do update set value = greatest(settings.value, excluded.value)`,
    { id },
  );
}

/** Drops partitions that an interrupted call has detached. */
async function dropDetached(db: Db): Promise<void> {
  const left = await rows<{ name: string }>(
    db,
    `select relname as name from pg_class
      where relkind = 'r' and not relispartition
        and relnamespace = (select relnamespace from pg_class where oid = 'deliveries'::regclass)
        and relname ~ '^(${PARTITIONED.join("|")})_[0-9]{8}_[0-9]{8}$'`,
  );
  for (const { name } of left) await withLockTimeout(db, (run) => run(`drop table if exists ${name}`));
}

/**
 * Detaches a partition concurrently, without blocking other sessions, then drops it. Finishes an interrupted detach
 * first. Returns false if the lock timed out.
 */
async function dropPartition(db: Db, table: Partitioned, { name, detaching }: Partition): Promise<boolean> {
  return withLockTimeout(db, async (run) => {
    await run(`alter table ${table} detach partition ${name} ${detaching ? "finalize" : "concurrently"}`);
    await run(`drop table if exists ${name}`);
  });
}

/** Changes tables with a lock timeout, because other statements wait behind the lock. Returns false if it timed out. */
async function withLockTimeout(
  db: Db,
  work: (run: (sql: string) => Promise<unknown>) => Promise<unknown>,
): Promise<boolean> {
  // DETACH CONCURRENTLY must not run in a transaction, and the lock timeout is a session setting.
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
