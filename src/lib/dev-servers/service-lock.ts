import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as sleep } from "node:timers/promises";
import { isAlive } from "./process/processes.ts";
import { ensureDataDir, readState, writeState } from "./process/state-file.ts";

/** SQLite's codes of a lock that another process holds (SQLITE_BUSY, SQLITE_LOCKED), as opposed to an unusable file. */
const LOCKED: unknown[] = [5, 6];

/**
 * Locks a DATA_DIR for one service, until `release` or the end of this process.
 *
 * Uses the operating system's lock on `service.lock`, through SQLite, which supports it on every platform: `kill -9`
 * releases it, a reused pid cannot hold it, and two processes cannot both get it. The pid file only serves the error
 * message.
 *
 * @throws Error that names the pid of the service that uses `dataDir`, or the reason why `dataDir` cannot be locked
 */
export async function lockDataDir(dataDir: string): Promise<{ release(): Promise<void> }> {
  const folder = await ensureDataDir(dataDir);
  const pidFile = path.join(folder, "service.pid");
  const database = new DatabaseSync(path.join(folder, "service.lock"), { open: false });
  try {
    database.open();
    database.exec("pragma busy_timeout = 0; begin exclusive");
    await writeState(pidFile, { pid: process.pid });
  } catch (error) {
    if (database.isOpen) database.close();
    if (!LOCKED.includes((error as { errcode?: number }).errcode))
      throw new Error(
        `cannot lock ${folder}: service.lock: ${(error as Error).message}; let this user write to the folder and to the file, or set another DATA_DIR`,
        { cause: error },
      );
    throw new Error(`${await nameOwner(pidFile)} already uses ${folder}; stop it, or set another DATA_DIR`);
  }
  return {
    // The pid file is kept: it has no meaning without the lock, and removing it would cause a race.
    async release() {
      if (database.isOpen) database.close();
    },
  };
}

/**
 * Names the owner. A new owner writes its pid just after it got the lock, so a stale pid is read again for half a
 * second.
 */
async function nameOwner(pidFile: string): Promise<string> {
  for (let tries = 0; tries < 10; tries++) {
    const { pid = 0 } = await readState<{ pid: number }>(pidFile);
    if (isAlive(pid)) return `another service (pid ${pid})`;
    await sleep(50);
  }
  return "another service";
}
