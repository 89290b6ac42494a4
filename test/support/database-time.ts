import { type Timestamp, timestampDate } from "@bufbuild/protobuf/wkt";
import { expect } from "vitest";
import { type Db, rows } from "../../src/lib/pg/database.ts";

/** The database's times before and after a call. */
export interface Span {
  from: Date;
  to: Date;
}

/** Reads the database's clock. */
export async function databaseTime(db: Db): Promise<Date> {
  const [{ now } = { now: new Date(Number.NaN) }] = await rows<{ now: Date }>(
    db,
    "select clock_timestamp() as now",
  );
  return now;
}

/** Makes a call; answers its result, and when it was made. */
export async function timed<T>(db: Db, call: () => Promise<T>): Promise<[T, Span]> {
  const from = await databaseTime(db);
  const result = await call();
  return [result, { from, to: await databaseTime(db) }];
}

/** Expects a time of the database's clock while a call was made, or so many milliseconds later. */
export function expectWithin({ from, to }: Span, time: Timestamp | Date | undefined, laterMs = 0): void {
  const found = Number(time instanceof Date ? time : time && timestampDate(time)) - laterMs;
  expect([from.getTime(), found, to.getTime()].toSorted((a, b) => a - b)).toEqual([
    from.getTime(),
    found,
    to.getTime(),
  ]);
}
