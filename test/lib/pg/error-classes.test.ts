import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { type Db, openDatabase, rows } from "../../../src/lib/pg/database.ts";
import { databaseErrorClass, isTransient } from "../../../src/lib/pg/faults.ts";
import { createTestDatabase } from "../../support/database.ts";
import { holdTime } from "../../support/held-time.ts";
import { part } from "../../support/parts.ts";

/** How long `openDatabase` waits for a connection, in milliseconds. */
const CONNECTION_TIMEOUT_MS = 5_000;

const { url, drop } = await createTestDatabase();
let admin: Db;
beforeAll(async () => {
  admin = openDatabase((await part("postgres")).url, { max: 1 });
});
afterAll(async () => {
  await admin.destroy();
  await drop();
});

/** Opens a pool of one connection for the test. */
function open(at: string): Db {
  const db = openDatabase(at, { max: 1 });
  onTestFinished(() => db.destroy());
  return db;
}

/** The SQLSTATE and the class of the error that a statement fails with. */
async function failureOf(db: Db, sql = "select 1"): Promise<[string | undefined, string]> {
  const error = await rows(db, sql).then(
    () => expect.unreachable("nothing failed"),
    (error: Error & { code?: string }) => error,
  );
  return [error.code, databaseErrorClass(error)];
}

describe("the database is unavailable, and not at fault,", () => {
  test("when it accepts a connection and says nothing, and when nothing listens at its address", async () => {
    const server = createServer((socket) => socket.on("error", () => {})).listen(0, "127.0.0.1");
    await once(server, "listening");
    onTestFinished(() => void server.close());
    const url = `postgres://u:p@127.0.0.1:${(server.address() as AddressInfo).port}/x`;
    const { pass, goOn } = holdTime();
    const connected = once(server, "connection");
    const unanswered = failureOf(open(url));
    await connected;
    pass(CONNECTION_TIMEOUT_MS);
    expect((await unanswered)[1]).toBe("unavailable");
    goOn();
    server.close();
    expect((await failureOf(open(url)))[1]).toBe("unavailable");
  });

  test("when it ends a connection during a statement", async () => {
    const sleeping = failureOf(open(url), "select pg_sleep(60)");
    const end =
      "select pg_terminate_backend(pid) from pg_stat_activity where datname = :name and query = 'select pg_sleep(60)'";
    await expect.poll(() => rows(admin, end, { name: new URL(url).pathname.slice(1) })).toHaveLength(1);
    expect((await sleeping)[1]).toBe("unavailable");
  });

  test("when it only reads, as a standby after a failover does", async () => {
    const reading = open(url);
    await reading.raw("set default_transaction_read_only = on");
    const failure = await failureOf(reading, "insert into settings (name, value) values ('a', 'b')");
    expect(failure).toEqual(["25006", "unavailable"]);
  });

  test("when it has no connection left", async () => {
    await admin.raw("create role few_connections login password 'p' connection limit 0");
    onTestFinished(() => admin.raw("drop role few_connections"));
    const at = Object.assign(new URL(url), { username: "few_connections", password: "p" });
    expect(await failureOf(open(at.href))).toEqual(["53300", "unavailable"]);
  });
});

test("a prepared statement that the server no longer knows as it was is prepared again", async () => {
  const db = open(url);
  const ask = () => rows(db, "select * from prepared_by_test", {}, { prepare: "prepared_by_test" });
  await db.raw("create table prepared_by_test as select 1 as n");
  expect(await ask()).toEqual([{ n: 1 }]);
  await Promise.all([db.raw("deallocate all"), db.raw("deallocate all")]);
  expect(await ask()).toEqual([{ n: 1 }]);
  // Its result has got another column.
  await db.raw("alter table prepared_by_test add column more text default 'x'");
  expect(await ask()).toEqual([{ n: 1, more: "x" }]);
});

test.each([
  ["57P03", "the database system is starting up", "unavailable", true],
  ["57P02", "terminating connection because of crash of another server process", "unavailable", true],
  ["57P05", "terminating connection due to idle-session timeout", "unavailable", true],
  ["08006", "connection failure", "unavailable", true],
  ["53100", "could not extend file: No space left on device", "unavailable", true],
  ["42P01", "", "fault", false],
  ["XX001", "", "fault", false],
  ["0A000", "", "fault", false],
  // Timeouts of transactions.
  ["25P03", "", "unavailable", true],
  ["25P04", "", "unavailable", true],
  // PostgreSQL chose the transaction in a deadlock.
  ["40P01", "", "conflict", true],
])(
  "an error of SQLSTATE %s %s is of class %s, and repeating may cure it: %s",
  (code, message, errorClass, transient) => {
    const error = Object.assign(new Error(message), { code });
    expect([databaseErrorClass(error), isTransient(error)]).toEqual([errorClass, transient]);
  },
);

test.each([
  ["57P03", "das Datenbanksystem startet", "ProcessStartupPacket", "unavailable"],
  [
    "25006",
    "„INSERT“ kann nicht in einer Read-Only-Transaktion ausgeführt werden",
    "PreventCommandIfReadOnly",
    "unavailable",
  ],
  ["0A000", "gecachter Plan darf den Ergebnistyp nicht ändern", "RevalidateCachedQuery", "stale statement"],
  // The words of pg in a message that repeats a value.
  ["22P02", "ungültige Eingabesyntax für Typ bigint: „Connection terminated“", "pg_strtoint64", "fault"],
  ["0A000", "cached plan must not change result type", "another", "fault"],
])(
  "an error of PostgreSQL is known by SQLSTATE %s and function, not by its message: %s",
  (code, message, routine, is) => {
    const error = Object.assign(new Error(message), { code, routine, severity: "FEHLER" });
    expect(databaseErrorClass(error)).toBe(is);
  },
);
