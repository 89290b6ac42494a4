import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as sleep } from "node:timers/promises";
import { commandOf } from "./process/processes.ts";
import { ensureDataDir, readState, writeState } from "./process/state-file.ts";

interface Owner {
  pid: number;
  /** Its command line: tells the owner from another process that got its pid later. */
  command: string | null;
}

/**
 * One service per DATA_DIR, until `release` or the end of this process, however it ends.
 *
 * The lock is the operating system's own, on `service.lock` (held through SQLite, which has it on every
 * platform): a `kill -9` frees it, a reused pid cannot hold it, and two starters cannot both get it. The pid
 * file beside it only serves the message.
 *
 * @throws Error naming the pid of the service that holds `dataDir`.
 */
export async function lockDataDir(dataDir: string): Promise<{ release(): Promise<void> }> {
  const folder = await ensureDataDir(dataDir);
  const pidFile = path.join(folder, "service.pid");
  const database = new DatabaseSync(path.join(folder, "service.lock"));
  try {
    database.exec("pragma busy_timeout = 0; begin exclusive");
  } catch (error) {
    database.close();
    if (!isBusy(error))
      throw new Error(`cannot lock ${folder}: ${(error as Error).message}`, { cause: error });
    throw new Error(`${await nameOwner(pidFile)} already uses ${folder}; stop it, or set another DATA_DIR`);
  }
  await writeState(pidFile, { pid: process.pid, command: commandOf(process.pid) } satisfies Owner);
  return {
    // The pid file stays: the lock alone says whether it means anything, and removing it would race.
    async release() {
      if (database.isOpen) database.close();
    },
  };
}

/** SQLITE_BUSY or SQLITE_LOCKED: somebody else has it, rather than the file being unusable. */
function isBusy(error: unknown): boolean {
  const code = (error as { errcode?: number }).errcode;
  return code === 5 || code === 6;
}

/** A holder writes its pid just after it got the lock, so a stale pid is asked for again, for half a second. */
async function nameOwner(pidFile: string): Promise<string> {
  for (let tries = 0; tries < 10; tries++) {
    const owner = await readState<Owner>(pidFile);
    if (owner?.pid !== undefined && commandOf(owner.pid) === owner.command)
      return `another service (pid ${owner.pid})`;
    await sleep(50);
  }
  return "another service";
}
