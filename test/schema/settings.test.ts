import { expect, test } from "vitest";
import { setNextTurn, takeTurn } from "../../src/schema/settings.ts";
import { openQueueDatabase } from "../queue/queue.ts";

const db = await openQueueDatabase();

/** Takes the turn of an hour, so that none comes round within a test. */
const take = (on = db) => takeTurn(on, "turn", 3_600);

test("a turn is taken once per interval, also if the clock of the database was set back", async () => {
  expect([await take(), await take()]).toEqual([true, false]);
  for (const taken of ["value::timestamptz - interval '1 hour'", "now() + interval '1 day'"]) {
    await db("settings").update({ value: db.raw(`(${taken})::text`) });
    expect([await take(), await take()]).toEqual([true, false]);
  }
});

test("a turn that another process took since the transaction began is not taken again", async () => {
  await db.transaction(async (earlier) => {
    // The time of a transaction is that of its first statement.
    await earlier.raw("select now()");
    expect([await take(), await take(earlier)]).toEqual([true, false]);
  });
});

test("a process that has taken a turn can set the time of the next one", async () => {
  await take();
  await setNextTurn(db, "turn", 60);
  expect(await take()).toBe(false);
  await setNextTurn(db, "turn", 0);
  expect(await take()).toBe(true);
});
