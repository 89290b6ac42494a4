import { type Db, rows } from "../../src/db/database.ts";
import { parentOf, processorTimeOfFamily } from "./processes.ts";

/** What PostgreSQL has done so far. */
export interface DatabaseWork {
  /** Without full-page images, in bytes: how many there are depends on checkpoints, not on the work. */
  walBytes: number;
  /** Processor time of all of its processes, in microseconds. */
  cpuUs: number;
}

/** Reads what PostgreSQL has done so far. @param db as superuser */
export async function readDatabaseWork(db: Db): Promise<DatabaseWork> {
  const [row] = await rows<{ wal: number; backend: number }>(
    db,
    "select (wal_bytes - wal_fpi * 8192)::float8 as wal, pg_backend_pid() as backend from pg_stat_wal",
  );
  const { wal, backend } = row as { wal: number; backend: number };
  return { walBytes: wal, cpuUs: processorTimeOfFamily(parentOf(backend)) };
}
