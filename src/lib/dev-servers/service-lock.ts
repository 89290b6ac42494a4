import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as sleep } from "node:timers/promises";
import { commandOf } from "./process/processes.ts";
import { ensureDataDir, readState, writeState } from "./process/state-file.ts";

interface Owner {
  pid: number;
  /** The command line, which distinguishes the owner from a later process with the same pid. */
  command: string | null;
}

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
  } catch (error) {
    if (database.isOpen) database.close();
    if (!isBusy(error))
      throw new Error(
        `cannot lock ${folder}: service.lock: ${(error as Error).message}; let this user write to the folder and to the file, or set another DATA_DIR`,
        { cause: error },
      );
    throw new Error(`${await nameOwner(pidFile)} already uses ${folder}; stop it, or set another DATA_DIR`);
  }
  await writeState(pidFile, { pid: process.pid, command: commandOf(process.pid) } satisfies Owner);
  return {
    // The pid file is kept: it has no meaning without the lock, and removing it would cause a race.
    async release() {
      if (database.isOpen) database.close();
    },
  };
}

/** Whether another process holds the lock (SQLITE_BUSY or SQLITE_LOCKED), as opposed to an unusable file. */
function isBusy(error: unknown): boolean {
  const code = (error as { errcode?: number }).errcode;
  return code === 5 || code === 6;
}

/**
 * Names the owner. A new owner writes its pid just after it got the lock, so a stale pid is read again for half a
 * second.
 */
async function nameOwner(pidFile: string): Promise<string> {
  for (let tries = 0; tries < 10; tries++) {
    const owner = await readState<Owner>(pidFile);
    if (owner?.pid !== undefined && commandOf(owner.pid) === owner.command)
      return `another service (pid ${owner.pid})`;
    await sleep(50);
  }
  return "another service";
}
