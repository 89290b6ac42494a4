import { expect, onTestFinished, test } from "vitest";
import { openDatabase, rows } from "../../../src/lib/pg/database.ts";
import { createTestDatabase } from "../../support/database.ts";

test("a connection whose statement was given up takes no other: the next one is answered over a new connection", async () => {
  const database = await createTestDatabase();
  const locking = openDatabase(database.url, { max: 1 });
  const db = openDatabase(database.url, { max: 1, queryTimeoutMs: 500 });
  const lock = await locking.transaction();
  onTestFinished(async () => {
    if (!lock.isCompleted()) await lock.rollback();
    await Promise.all([db.destroy(), locking.destroy()]);
    await database.drop();
  });
  const pid = async () => (await rows<{ pid: number }>(db, "select pg_backend_pid() as pid"))[0]?.pid;
  const before = await pid();
  expect(await pid()).toBe(before);
  await lock.raw("lock table webhooks in access exclusive mode");
  await expect(rows(db, "select count(*) from webhooks")).rejects.toThrow("Query read timeout");
  // The lock is held all the same: behind that statement nothing would be answered.
  expect(await pid()).not.toBe(before);
});
