import { expect, test } from "vitest";
import { findLongSnapshot } from "../../../src/db/connections/snapshots.ts";
import { openQueueDatabase } from "../queue/queue.ts";

const db = await openQueueDatabase();

test("a snapshot that is held for long is found with its owner, and no other connection is", async () => {
  expect(await findLongSnapshot(db, 0.2)).toBeNull();
  const other = await db.transaction({ isolationLevel: "repeatable read" });
  try {
    const { rows } = await other.raw("select pg_backend_pid() as pid");
    await expect
      .poll(() => findLongSnapshot(db, 0.2))
      .toEqual({
        pid: rows[0].pid,
        user: expect.any(String),
        application: "webhook-service",
        client: expect.anything(),
        state: "idle in transaction",
        seconds: expect.any(Number),
      });
    expect(await findLongSnapshot(db)).toBeNull();
  } finally {
    await other.rollback();
  }
  expect(await findLongSnapshot(db, 0.2)).toBeNull();
});
