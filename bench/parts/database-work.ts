import { type Db, rows } from "../../src/db/database.ts";
import { parentOf, processorTimeOfFamily } from "./processes.ts";

/** PostgreSQL's work so far. */
export interface DatabaseWork {
  /** WAL without full-page images, in bytes: their number depends on checkpoints and not on the work. */
  walBytes: number;
  /** Processor time of all its processes, in microseconds. */
  cpuUs: number;
}

/** Reads PostgreSQL's work so far. @param db a superuser's connection */
export async function readDatabaseWork(db: Db): Promise<DatabaseWork> {
  const [row] = await rows<{ wal: number; backend: number }>(
    db,
    "select (wal_bytes - wal_fpi * 8192)::float8 as wal, pg_backend_pid() as backend from pg_stat_wal",
  );
  const { wal, backend } = row as { wal: number; backend: number };
  return { walBytes: wal, cpuUs: processorTimeOfFamily(parentOf(backend)) };
}
