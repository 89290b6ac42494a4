import { createHash, randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { chown, mkdir, realpath, rm, stat } from "node:fs/promises";
import path from "node:path";
import type { Progress } from "../../process/index.ts";
import { canReach, isRoot, NOBODY, type Owner, sharedFolder } from "../process/owner.ts";
import { readState, writeState } from "../process/state-file.ts";

/** The location and owner of a DATA_DIR's database. */
export interface PostgresHome {
  /** A folder that belongs to `owner` and is closed to others. Contains `data`. */
  folder: string;
  /** PostgreSQL's data folder. Missing before the first start. */
  data: string;
  /** The user PostgreSQL runs as; null for the current user. */
  owner: Owner | null;
}

/** The content of `DATA_DIR/postgres.json`, for later starts. */
interface PostgresRecord {
  /** The location of the data if it is outside DATA_DIR. */
  elsewhere: string;
  /** The DATA_DIR that `elsewhere` was created for. */
  madeFor: string;
  /** The port of the last start. */
  port: number;
}

/** The record of earlier starts; empty at first. */
export function readPostgresRecord(dataDir: string): Promise<Partial<PostgresRecord>> {
  return readState<PostgresRecord>(recordFile(dataDir));
}

/** Merges `news` into the record. */
export async function writePostgresRecord(dataDir: string, news: Partial<PostgresRecord>): Promise<void> {
  await writeState(recordFile(dataDir), { ...(await readPostgresRecord(dataDir)), ...news });
}

/** The location of the database of `dataDir` (a real path); null if it has none yet. Creates nothing. */
export async function findPostgresHome(dataDir: string): Promise<PostgresHome | null> {
  const { elsewhere, madeFor = dataDir } = await readPostgresRecord(dataDir);
  // A copied DATA_DIR still names the original's database, which must stay the original's.
  if (madeFor !== dataDir && existsSync(recordFile(madeFor))) return null;
  const folder = elsewhere ?? path.join(dataDir, "postgres");
  const found = await stat(folder).catch(() => null);
  // Root runs PostgreSQL as the owner of the data, including ordinary users.
  return found && homeIn(folder, isRoot() ? { uid: found.uid, gid: found.gid } : null);
}

/**
 * Finds or creates the folder for the database of `dataDir` (a real path).
 *
 * PostgreSQL refuses to run as root, so for root it runs as `nobody`. Its data is in DATA_DIR/postgres if that user
 * can access it, otherwise (a parent folder is closed) in a shared place.
 */
export async function preparePostgresHome(dataDir: string, progress: Progress): Promise<PostgresHome> {
  const found = await findPostgresHome(dataDir);
  if (found !== null) return found;
  const inside = path.join(dataDir, "postgres");
  if (!isRoot()) return makeHome(inside, null);
  if (await canReach(NOBODY, dataDir)) return makeHome(inside, NOBODY);
  const mark = createHash("sha256").update(dataDir).digest("hex").slice(0, 16);
  const name = `${mark}-${randomBytes(4).toString("hex")}`;
  const elsewhere = path.join(await sharedFolder("data"), name);
  const home = await makeHome(elsewhere, NOBODY);
  await writePostgresRecord(dataDir, { elsewhere, madeFor: dataDir });
  progress(
    `keeping the database in ${elsewhere}: PostgreSQL does not run as root, and other users cannot access ${dataDir}`,
  );
  return home;
}

/** Deletes `dataDir` and its database, wherever it is stored. No server may use it any more. */
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

function recordFile(dataDir: string): string {
  return path.join(dataDir, "postgres.json");
}
