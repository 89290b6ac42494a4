import { expect, test } from "vitest";
import { setNextTurn, takeTurn } from "../../src/db/settings.ts";
import { openQueueDatabase } from "./queue/queue.ts";

/** So long that no turn comes round within a test, in seconds. */
const EVERY_S = 3_600;

const db = await openQueueDatabase();

test("a turn is taken once per interval", async () => {
  expect(await takeTurn(db, "regular", EVERY_S)).toBe(true);
  expect(await takeTurn(db, "regular", EVERY_S)).toBe(false);
  await db.raw(
    "update settings set value = (value::timestamptz - interval '1 hour')::text where name = 'regular'",
  );
  expect(await takeTurn(db, "regular", EVERY_S)).toBe(true);
  expect(await takeTurn(db, "regular", EVERY_S)).toBe(false);
});

test("a turn that was taken before the clock of the database was set back is taken again, once", async () => {
  await db.raw("insert into settings (name, value) values ('future', (now() + interval '1 day')::text)");
  expect(await takeTurn(db, "future", EVERY_S)).toBe(true);
  expect(await takeTurn(db, "future", EVERY_S)).toBe(false);
});

test("a turn that another process took since the transaction began is not taken again", async () => {
  await db.transaction(async (earlier) => {
    // The time of a transaction is that of its first statement.
    await earlier.raw("select now()");
    expect(await takeTurn(db, "contested", EVERY_S)).toBe(true);
    expect(await takeTurn(earlier, "contested", EVERY_S)).toBe(false);
  });
});

test("a process that has taken a turn can set the time of the next one", async () => {
  expect(await takeTurn(db, "set", EVERY_S)).toBe(true);
  await setNextTurn(db, "set", 60);
  expect(await takeTurn(db, "set", EVERY_S)).toBe(false);
  await setNextTurn(db, "set", 0);
  expect(await takeTurn(db, "set", EVERY_S)).toBe(true);
});
