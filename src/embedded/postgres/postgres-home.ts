import { createHash, randomBytes } from "node:crypto";
import { access, chown, lstat, mkdir, readdir, realpath, rm, stat } from "node:fs/promises";
import path from "node:path";
import type { Progress } from "../../process/progress.ts";
import { canReach, isRoot, NOBODY, type Owner } from "../process/owner.ts";
import { findByCommand, stopProcess } from "../process/processes.ts";
import { sharedFolder } from "../process/shared-folder.ts";
import { readState, writeState } from "../process/state-file.ts";
import { POSTGRES_STOP_STEPS } from "./postmaster.ts";

/** Where this DATA_DIR's database lives and whose it is. */
export interface PostgresHome {
  /** Belongs to `owner`, closed to everybody else; holds `data`. */
  folder: string;
  /** PostgreSQL's data folder; absent until the first start. */
  data: string;
  /** Whom PostgreSQL runs as; null: as we do. */
  owner: Owner | null;
}

/** `DATA_DIR/postgres.json`: what a later start must know. */
export interface PostgresRecord {
  /** Where the data is when it could not be in DATA_DIR itself. */
  elsewhere: string;
  /** The DATA_DIR `elsewhere` was made for. */
  madeFor: string;
  /** The port the caller asked for, and the one it became. */
  asked: number;
  port: number;
}

/** What is known from earlier starts; empty at first. */
export async function readPostgresRecord(dataDir: string): Promise<Partial<PostgresRecord>> {
  return (await readState<PostgresRecord>(recordFile(dataDir))) ?? {};
}

/** Adds to what later starts will know. */
export async function writePostgresRecord(dataDir: string, news: Partial<PostgresRecord>): Promise<void> {
  await writeState(recordFile(dataDir), { ...(await readPostgresRecord(dataDir)), ...news });
}

/** Where the database of `dataDir` (a real path) is, without making anything; null when it has none yet. */
export async function findPostgresHome(dataDir: string): Promise<PostgresHome | null> {
  const { elsewhere, madeFor } = await readPostgresRecord(dataDir);
  const folder = elsewhere ?? path.join(dataDir, "postgres");
  // A copy of a DATA_DIR still names the original's database, which stays the original's.
  if (madeFor !== undefined && madeFor !== dataDir && (await exists(recordFile(madeFor)))) return null;
  if (!(await exists(folder))) return null;
  return homeIn(folder, await ownerOf(folder));
}

/**
 * Finds or makes the folder for the database of `dataDir` (a real path).
 *
 * PostgreSQL refuses root's rights, so started by root it runs as `nobody`. Its data is in DATA_DIR/postgres
 * where that user can get there, else (a closed folder above) in a folder of its own in a shared place.
 *
 * @throws Error when the folder can no longer be reached by its owner.
 */
export async function preparePostgresHome(dataDir: string, progress: Progress): Promise<PostgresHome> {
  const found = await findPostgresHome(dataDir);
  if (found !== null) {
    await assertReachable(found);
    return found;
  }
  const inside = path.join(dataDir, "postgres");
  if (!isRoot()) return makeHome(inside, null);
  if (await canReach(NOBODY, dataDir)) return makeHome(inside, NOBODY);
  const parent = await sharedFolder("data");
  const mark = createHash("sha256").update(dataDir).digest("hex").slice(0, 16);
  await tellOfOrphans(parent, mark, dataDir, progress);
  const elsewhere = path.join(parent, `${mark}-${randomBytes(4).toString("hex")}`);
  const home = await makeHome(elsewhere, NOBODY);
  await writePostgresRecord(dataDir, { elsewhere, madeFor: dataDir });
  progress(
    `keeping the database in ${elsewhere}: PostgreSQL does not run as root, and nobody else can enter ${dataDir}`,
  );
  return home;
}

/** DATA_DIR was deleted, its database elsewhere was not: stopped, else it would go on for ever, but never deleted. */
async function tellOfOrphans(
  parent: string,
  mark: string,
  dataDir: string,
  progress: Progress,
): Promise<void> {
  for (const { pid, command } of findByCommand(` -D ${path.join(parent, mark)}-`)) {
    progress(`stopping the database (pid ${pid}) of an earlier ${dataDir}`);
    await stopProcess(pid, command, POSTGRES_STOP_STEPS);
  }
  for (const name of (await readdir(parent)).filter((entry) => entry.startsWith(`${mark}-`))) {
    progress(
      `${path.join(parent, name)} holds the database of an earlier ${dataDir}; delete it if you do not need it`,
    );
  }
}

/** Deletes `dataDir`, its database included wherever that is. Nothing may run on it any more. */
export async function removeDataDir(dataDir: string): Promise<void> {
  const home = await realpath(dataDir).then(findPostgresHome, () => null);
  if (home !== null) await rm(home.folder, { recursive: true, force: true });
  await rm(dataDir, { recursive: true, force: true });
}

async function makeHome(folder: string, owner: Owner | null): Promise<PostgresHome> {
  await mkdir(folder, { mode: 0o700 });
  if (owner !== null) await chown(folder, owner.uid, owner.gid);
  return homeIn(folder, owner);
}

function homeIn(folder: string, owner: Owner | null): PostgresHome {
  return { folder, data: path.join(folder, "data"), owner };
}

/** Root leaves a database to whom it belongs: an ordinary user's own, begun without root's rights, too. */
async function ownerOf(folder: string): Promise<Owner | null> {
  if (!isRoot()) return null;
  const { uid, gid } = await stat(folder);
  return uid === 0 ? NOBODY : { uid, gid };
}

async function assertReachable({ folder, owner }: PostgresHome): Promise<void> {
  if (owner !== null) {
    if (await canReach(owner, folder)) return;
    throw new Error(
      `the database in ${folder} belongs to user ${owner.uid}, who cannot get there: a folder above it is closed (chmod o+x)`,
    );
  }
  const { uid } = await lstat(folder);
  if (process.getuid !== undefined && uid !== process.getuid()) {
    throw new Error(
      `the database in ${folder} belongs to user ${uid}: start as that user or as root, or set another DATA_DIR`,
    );
  }
}

function recordFile(dataDir: string): string {
  return path.join(dataDir, "postgres.json");
}

async function exists(file: string): Promise<boolean> {
  return access(file).then(
    () => true,
    () => false,
  );
}
