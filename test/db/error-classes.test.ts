import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Db, openDatabase, rows } from "../../src/db/database.ts";
import { databaseErrorClass, isTransient } from "../../src/db/faults.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { part } from "../support/parts.ts";

let database: TestDatabase;
let db: Db;
let admin: Db;

beforeAll(async () => {
  database = await createTestDatabase();
  db = openDatabase(database.url, { max: 2 });
  admin = openDatabase((await part("postgres")).url, { max: 1 });
});
afterAll(async () => {
  await db.destroy();
  await admin.destroy();
  await database.drop();
});

/** The error that work fails with. */
async function errorOf(work: () => Promise<unknown>): Promise<Error> {
  try {
    await work();
  } catch (error) {
    return error as Error;
  }
  throw new Error("nothing failed");
}

const nameOf = (url: string) => new URL(url).pathname.slice(1);

describe("the database is unavailable, and not at fault,", () => {
  test("when nothing listens at its address", async () => {
    const nobody = createServer().listen(0, "127.0.0.1");
    await once(nobody, "listening");
    const { port } = nobody.address() as AddressInfo;
    nobody.close();
    const away = openDatabase(`postgres://u:p@127.0.0.1:${port}/x`, { max: 1 });
    expect(databaseErrorClass(await errorOf(() => rows(away, "select 1")))).toBe("unavailable");
    await away.destroy();
  });

  test("when it accepts a connection and says nothing", async () => {
    const silent = createServer((socket) => socket.on("error", () => {})).listen(0, "127.0.0.1");
    await once(silent, "listening");
    const { port } = silent.address() as AddressInfo;
    const away = openDatabase(`postgres://u:p@127.0.0.1:${port}/x`, { max: 1 });
    const error = await errorOf(() => rows(away, "select 1"));
    expect([error.message, databaseErrorClass(error)]).toEqual([expect.any(String), "unavailable"]);
    await away.destroy();
    silent.close();
  });

  test("when it ends a connection amid a statement", async () => {
    const other = await createTestDatabase();
    const victim = openDatabase(other.url, { max: 1 });
    const sleeping = errorOf(() => rows(victim, "select pg_sleep(60)"));
    const ended = () =>
      rows(
        admin,
        "select pg_terminate_backend(pid) from pg_stat_activity where datname = :name and query like '%pg_sleep%'",
        { name: nameOf(other.url) },
      );
    await expect.poll(ended).toHaveLength(1);
    expect(databaseErrorClass(await sleeping)).toBe("unavailable");
    await victim.destroy();
    await other.drop();
  });

  test("when it only reads, as a standby after a failover does", async () => {
    const reading = openDatabase(database.url, { max: 1 });
    await reading.raw("set default_transaction_read_only = on");
    const error = await errorOf(() => rows(reading, "insert into settings (name, value) values ('a', 'b')"));
    expect([(error as { code?: string }).code, databaseErrorClass(error)]).toEqual(["25006", "unavailable"]);
    await reading.destroy();
  });

  test("when it has no connection left", async () => {
    const other = await createTestDatabase();
    await admin.raw(`create role few_connections login password 'p' connection limit 0`);
    const url = new URL(other.url);
    [url.username, url.password] = ["few_connections", "p"];
    const full = openDatabase(url.href, { max: 1 });
    const error = await errorOf(() => rows(full, "select 1"));
    expect([(error as { code?: string }).code, databaseErrorClass(error)]).toEqual(["53300", "unavailable"]);
    await full.destroy();
    await other.drop();
    await admin.raw("drop role few_connections");
  });

  test.each([
    ["57P03", "the database system is starting up"],
    ["57P02", "terminating connection because of crash of another server process"],
    ["57P05", "terminating connection due to idle-session timeout"],
    ["08006", "connection failure"],
    ["53100", "could not extend file: No space left on device"],
  ])("by SQLSTATE %s: %s", (code, message) => {
    expect(databaseErrorClass(Object.assign(new Error(message), { code }))).toBe("unavailable");
  });
});

describe("a prepared statement that the server does not know as it was", () => {
  const SELECT = "select * from prepared_by_test order by 1";
  const ask = () => rows(db, SELECT, {}, { prepare: "prepared_by_test" });

  test("is prepared again after every prepared statement was dropped", async () => {
    await db.raw("create table prepared_by_test (n int)");
    await db.raw("insert into prepared_by_test values (1)");
    expect(await ask()).toEqual([{ n: 1 }]);
    await Promise.all([db.raw("deallocate all"), db.raw("deallocate all")]);
    expect(await ask()).toEqual([{ n: 1 }]);
  });

  test("is prepared again after its result has got another column", async () => {
    expect(await ask()).toEqual([{ n: 1 }]);
    await db.raw("alter table prepared_by_test add column more text default 'x'");
    expect(await ask()).toEqual([{ n: 1, more: "x" }]);
    await db.raw("drop table prepared_by_test");
  });
});

describe("an error is a fault, which repeating does not cure,", () => {
  test.each([
    ["42P01", "relation does not exist"],
    ["23505", "duplicate key value violates unique constraint"],
    ["XX001", "invalid page in block 7 of relation"],
    ["XX000", "cache lookup failed"],
    ["0A000", "cannot do that"],
  ])("by SQLSTATE %s", (code, message) => {
    const error = Object.assign(new Error(message), { code });
    expect([databaseErrorClass(error), isTransient(error)]).toEqual(["fault", false]);
  });

  test("unless PostgreSQL chose the transaction in a deadlock", () => {
    const error = Object.assign(new Error("deadlock detected"), { code: "40P01" });
    expect([databaseErrorClass(error), isTransient(error)]).toEqual(["conflict", true]);
  });
});
