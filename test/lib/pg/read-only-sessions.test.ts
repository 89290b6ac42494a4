import { afterAll, beforeEach, expect, onTestFinished, test, vi } from "vitest";
import { type Db, openDatabase, rows, takesWrites } from "../../../src/lib/pg/database.ts";
import { createTestDatabase } from "../../support/database.ts";

/** The age at which every connection is replaced, in milliseconds. */
const OLD_MS = 12 * 60_000;

const { url, drop } = await createTestDatabase();
const name = new URL(url).pathname.slice(1);
const admin = openDatabase(url, { max: 1 });
afterAll(async () => {
  await admin.destroy();
  await drop();
});

/** Makes new sessions read-only, or writable again; open ones stay as they are. */
const setReadOnly = (value: "on" | "off") =>
  admin.raw(`begin read write; alter database ${name} set default_transaction_read_only = ${value}; commit`);
const write = (db: Db) => rows(db, "update settings set value = value where name = :name", { name: "none" });
const pidOf = async (db: Db) => (await rows<{ pid: number }>(db, "select pg_backend_pid() as pid"))[0]?.pid;

let db: Db;
beforeEach(() => {
  db = openDatabase(url, { max: 4 });
  return () => db.destroy();
});

/** Holds all connections of the pool at once, and does something with each. */
async function withAll(work: (connection: { query(sql: string): Promise<unknown> }) => Promise<unknown>) {
  const { client } = db;
  const all = await Promise.all(Array.from({ length: client.pool.max }, () => client.acquireConnection()));
  await Promise.all(all.map(work));
  await Promise.all(all.map((connection) => client.releaseConnection(connection)));
}

test("a single 25006 replaces all connections of the pool", async () => {
  // As after a reload of the configuration, or behind a pooler whose server has changed.
  await withAll((connection) => connection.query("set default_transaction_read_only = on"));
  await expect(write(db)).rejects.toMatchObject({ code: "25006" });
  for (let n = 0; n < 5; n += 1) await write(db);
});

test("a check that finds a read-only session replaces all connections of the pool", async () => {
  await withAll((connection) => connection.query("set default_transaction_read_only = on"));
  expect(await takesWrites(db)).toBe(false);
  expect(await takesWrites(db)).toBe(true);
});

test("read-only sessions read, and are replaced soon after the database is writable again", async () => {
  await setReadOnly("on");
  onTestFinished(() => void setReadOnly("off"));
  await withAll(async () => {});
  await expect(write(db)).rejects.toMatchObject({ code: "25006" });
  expect(await rows(db, "select 1 as one")).toEqual([{ one: 1 }]);
  await setReadOnly("off");
  await expect
    .poll(() =>
      write(db).then(
        () => "written",
        () => "refused",
      ),
    )
    .toBe("written");
});

test("a connection is replaced once it is old", async () => {
  // Only the monotonic clock: the pool needs its timers.
  vi.useFakeTimers({ toFake: ["performance"] });
  onTestFinished(() => void vi.useRealTimers());
  const first = await pidOf(db);
  vi.advanceTimersByTime(OLD_MS / 2);
  expect(await pidOf(db)).toBe(first);
  vi.advanceTimersByTime(OLD_MS);
  expect(await pidOf(db)).not.toBe(first);
});

test("the error of a statement has a short message", async () => {
  const columns = Array.from({ length: 500 }, (_, n) => `${n} as c${n}`).join();
  const error: Error = await rows(db, `select ${columns} from missing`).catch((failure) => failure);
  expect(error.message).toMatch(/^relation "missing" does not exist \(in: select 0 as c0,.{60,70}…\)$/);
  expect(error).toMatchObject({ name: "DatabaseError", code: "42P01" });
});
