import { readdirSync, readFileSync } from "node:fs";
import { type Db, rows } from "../../src/db/database.ts";

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
  return { walBytes: wal, cpuUs: cpuOf(statOf(backend).parent) };
}

/** Processor time of a process so far, in microseconds. */
export function processorTime(pid: number): number {
  return statOf(pid).ticks * 10_000;
}

/** The state of a process: its parent, and its own and its ended children's processor time in hundredths of a second. */
function statOf(pid: number): { parent: number; ticks: number } {
  const fields = readFileSync(`/proc/${pid}/stat`, "latin1").split(") ").at(-1)?.split(" ") ?? [];
  const ticks = [11, 12, 13, 14].reduce((sum, place) => sum + Number(fields[place]), 0);
  return { parent: Number(fields[1]), ticks };
}

function cpuOf(postmaster: number): number {
  let ticks = 0;
  for (const name of readdirSync("/proc")) {
    const pid = Number(name);
    if (!Number.isInteger(pid)) continue;
    try {
      const stat = statOf(pid);
      if (pid === postmaster || stat.parent === postmaster) ticks += stat.ticks;
    } catch {
      // It ended meanwhile; its parent has its time.
    }
  }
  return ticks * 10_000;
}
