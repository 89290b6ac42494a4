import { expect } from "vitest";
import type { Db } from "../../src/lib/pg/database.ts";
import { listPartitions, PARTITIONED, type Partitioned, type Range } from "../../src/schema/partitions.ts";

export const DAY_MS = 86_400_000;
/** Retentions with which partitions are days and months. */
export const [DAYS, MONTHS] = [90, 91];

export async function dropAll(db: Db, tables: readonly Partitioned[] = PARTITIONED): Promise<void> {
  const all = (await Promise.all(tables.map((table) => listPartitions(db, table)))).flat();
  if (all.length > 0) await db.raw(`drop table ${all.map(({ name }) => name).join(", ")}`);
}

export const holds = (ranges: readonly Range[], moment: number) =>
  ranges.some(({ from, to }) => from.getTime() <= moment && moment < to.getTime());

/** The day of a moment. */
export function dayOf(moment: number): Range {
  const from = moment - (moment % DAY_MS);
  return { from: new Date(from), to: new Date(from + DAY_MS) };
}

/** The partitions of each table, once it is sure that none overlaps another, that all hold the moments, and nothing but days. */
export async function orderly(db: Db, moments: readonly number[] = []): Promise<Range[][]> {
  const tables: Range[][] = [];
  for (const table of PARTITIONED) {
    const partitions = await listPartitions(db, table);
    for (const [n, { from, to }] of partitions.entries()) {
      expect(from.getTime()).toBeLessThan(to.getTime());
      expect(from.getTime()).toBeGreaterThanOrEqual(partitions[n - 1]?.to.getTime() ?? 0);
      for (const bound of [from, to]) expect(bound.getTime() % DAY_MS).toBe(0);
    }
    for (const moment of moments) expect(holds(partitions, moment)).toBe(true);
    tables.push(partitions);
  }
  return tables;
}

/** A moment on each of the eight days from a time on, in milliseconds. */
export const weekFrom = (now: number) => [0, 1, 2, 3, 4, 5, 6, 7].map((day) => now + day * DAY_MS);
