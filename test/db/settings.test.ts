import { expect, test } from "vitest";
import { takeTurn } from "../../src/db/settings.ts";
import { openQueueDatabase } from "./queue/queue.ts";

/** So long that no turn comes round within a test, in seconds. */
const EVERY_S = 3_600;

const db = await openQueueDatabase();

test("a turn is taken once per interval", async () => {
  expect(await takeTurn(db, "regular", EVERY_S)).toBe(true);
  expect(await takeTurn(db, "regular", EVERY_S)).toBe(false);
  await db.raw("update settings set value = (now() - interval '61 minutes')::text where name = 'regular'");
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
