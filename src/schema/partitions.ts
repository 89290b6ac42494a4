import { count, type Db, databaseTime, rows } from "../lib/pg/index.ts";
import { takeLock } from "./advisory-locks.ts";

/** The tables partitioned by the time in their ids, in the order in which retention drops their partitions. */
export const PARTITIONED = ["deliveries", "attempts", "search_terms", "events"] as const;

/** A partitioned table. */
export type Partitioned = (typeof PARTITIONED)[number];

const DAY_MS = 86_400_000;
/** The number of days for which partitions are created in advance. */
const DAYS_AHEAD = 7;
/** The maximum retention with daily partitions, in days. Beyond it, partitions are monthly. */
const MAX_DAILY_RETENTION_DAYS = 90;
/** A time range; the end is exclusive. */
export interface Range {
  from: Date;
  to: Date;
}

/** A partition of a table. */
export interface Partition extends Range {
  name: string;
  /** Whether a DETACH CONCURRENTLY of it was interrupted. */
  detaching: boolean;
}

/** The nil UUID: it sorts before every id and identifies nothing. */
export const NIL_ID = "00000000-0000-0000-0000-000000000000";

/** The smallest id of a moment: ids of earlier events and deliveries sort before it. */
export function firstIdOf(moment: Date): string {
  const ms = Math.max(0, moment.getTime()).toString(16).padStart(12, "0");
  return `${ms.slice(0, 8)}-${ms.slice(8)}-0000-0000-000000000000`;
}

/** The first and the last id that the deliveries of an event can have. Other events may share the range. */
export interface IdRange {
  first: string;
  last: string;
}

/** @param id the id of an event or of one of its deliveries: they share the first eight bytes */
export function idRangeOf(id: string): IdRange {
  const prefix = id.slice(0, 18);
  return { first: `${prefix}-0000-000000000000`, last: `${prefix}-ffff-ffffffffffff` };
}

/** SQL for the last id that a delivery of an event can have. @param event a uuid: of the event or of a delivery of it */
export const lastIdOf = (event: string) =>
  `overlay(${event}::text placing '-ffff-ffffffffffff' from 19)::uuid`;

/**
 * A condition that a delivery's id is in the range of an event's: both share the first eight bytes. Other events may
 * share them too, so compare the event id as well.
 *
 * @param id the delivery's uuid column
 * @param event the event's uuid column
 */
export const isInRangeOf = (id: string, event: string) =>
  `${id} >= overlay(${event}::text placing '-0000-000000000000' from 19)::uuid and ${id} <= ${lastIdOf(event)}`;

/** The time in a UUIDv7, in milliseconds. */
export function timeOfId(id: string): Date {
  return new Date(Number.parseInt(id.slice(0, 8) + id.slice(9, 13), 16));
}

/** The partitions of a table, oldest first. */
export async function listPartitions(db: Db, table: Partitioned): Promise<Partition[]> {
  const found = await rows<{ name: string; bound: string; detaching: boolean }>(
    db,
    `select c.relname as name, pg_get_expr(c.relpartbound, c.oid) as bound, i.inhdetachpending as detaching
      from pg_inherits i join pg_class c on c.oid = i.inhrelid
      where i.inhparent = to_regclass(:table)`,
    { table },
  );
  return found
    .map(({ name, bound, detaching }) => {
      const [from, to] = [...bound.matchAll(/'([0-9a-f-]{36})'/g)].map(([, id]) => timeOfId(id as string));
      return { name, detaching, from: from as Date, to: to as Date };
    })
    .sort((a, b) => a.from.getTime() - b.from.getTime());
}

/**
 * Creates the partitions from today to a week ahead, and any missing ones that contain a time of `moments`.
 *
 * @returns the number of partitions created
 */
export async function ensurePartitions(
  db: Db,
  retentionDays: number,
  moments: readonly Date[] = [],
): Promise<number> {
  const now = (await databaseTime(db)).getTime();
  const ahead = Array.from({ length: DAYS_AHEAD + 1 }, (_, n) => new Date(now + n * DAY_MS));
  let made = 0;
  // Events first, so that each delivery's event has a partition.
  for (const table of PARTITIONED.toReversed()) {
    const wanted = [...moments, ...ahead];
    if (missing(await listPartitions(db, table), wanted).length === 0) continue;
    made += await db.transaction(async (trx) => {
      await takeLock(trx, "partitions");
      let added = 0;
      for (;;) {
        const there = await listPartitions(trx, table);
        const [moment] = missing(there, wanted);
        if (!moment) return added;
        await addPartition(trx, table, rangeFor(moment, there, retentionDays));
        added += 1;
      }
    });
  }
  return made;
}

function missing(partitions: readonly Range[], moments: readonly Date[]): Date[] {
  return moments
    .filter((moment) => !partitions.some(({ from, to }) => from <= moment && moment < to))
    .sort((a, b) => a.getTime() - b.getTime());
}

/** The day or month of a moment in UTC, shortened so that it does not overlap existing partitions. */
export function rangeFor(moment: Date, others: readonly Range[], retentionDays: number): Range {
  const [year, month, day] = [moment.getUTCFullYear(), moment.getUTCMonth(), moment.getUTCDate()];
  const daily = retentionDays <= MAX_DAILY_RETENTION_DAYS;
  let from = new Date(Date.UTC(year, month, daily ? day : 1));
  let to = new Date(daily ? Date.UTC(year, month, day + 1) : Date.UTC(year, month + 1, 1));
  for (const other of others) {
    if (other.to <= moment && other.to > from) from = other.to;
    if (other.from > moment && other.from < to) to = other.from;
  }
  return { from, to };
}

/** Creates and attaches a partition. ATTACH blocks no readers or writers; CREATE TABLE … PARTITION OF would. */
async function addPartition(trx: Db, table: Partitioned, { from, to }: Range): Promise<void> {
  const name = `${table}_${compact(from)}_${compact(to)}`;
  await count(trx, `create table ${name} (like ${table} including defaults including constraints)`);
  await count(
    trx,
    `alter table ${table} attach partition ${name} for values from ('${firstIdOf(from)}') to ('${firstIdOf(to)}')`,
  );
}

const compact = (date: Date) => date.toISOString().slice(0, 10).replaceAll("-", "");

/** Whether a statement failed because a row has no partition. */
export function isMissingPartition(error: unknown): boolean {
  const { code, message = "" } = (error ?? {}) as { code?: string; message?: string };
  return code === "23514" && message.includes("no partition of relation");
}

/**
 * Runs a statement. If a partition is missing, creates it and runs the statement again.
 *
 * @param moments the creation times of the inserted rows. Defaults to now
 */
export async function withPartitions<T>(
  db: Db,
  statement: () => Promise<T>,
  moments: () => readonly Date[] = () => [],
): Promise<T> {
  try {
    return await statement();
  } catch (error) {
    if (!isMissingPartition(error) || db.isTransaction) throw error;
  }
  await ensurePartitions(db, 1, moments());
  return statement();
}
