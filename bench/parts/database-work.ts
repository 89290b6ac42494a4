import { type Db, rows } from "../../src/lib/pg/database.ts";
import { parentOf, processorTimeOfFamily } from "./processes.ts";

/** The processor time of all of PostgreSQL's processes so far, in microseconds. */
export async function databaseTime(db: Db): Promise<number> {
  const [row] = await rows<{ backend: number }>(db, "select pg_backend_pid() as backend");
  return processorTimeOfFamily(parentOf(row?.backend as number));
}

/** The end of the WAL so far, from which `walSince` counts. All WAL is kept from then on. @param db a superuser's connection */
export async function walPosition(db: Db): Promise<string> {
  await db.raw("alter system set wal_keep_size = '64GB'");
  await db.raw("select pg_reload_conf()");
  return endOfWal(db);
}

/**
 * The bytes of WAL records since a position, without their full-page images, whose number depends on checkpoints and not on
 * the work. Statistics only count images, but PostgreSQL leaves the free space of a page out.
 */
export async function walSince(db: Db, position: string): Promise<number> {
  const end = await endOfWal(db);
  await db.raw("create extension if not exists pg_walinspect");
  const [row] = await rows<{ bytes: number }>(
    db,
    "select coalesce(sum(record_size), 0)::float8 as bytes from pg_get_wal_stats(:position::pg_lsn, :end::pg_lsn)",
    { position, end },
  );
  await db.raw("alter system reset wal_keep_size");
  await db.raw("select pg_reload_conf()");
  return row?.bytes ?? 0;
}

/** Flushes the WAL, because only flushed WAL can be read. */
async function endOfWal(db: Db): Promise<string> {
  await db.raw("select pg_logical_emit_message(true, 'bench', '')");
  const [row] = await rows<{ end: string }>(db, "select pg_current_wal_flush_lsn()::text as end");
  return row?.end ?? "";
}
