import { expect, test } from "vitest";
import { findLongSnapshot } from "../../../src/db/connections/snapshots.ts";
import { useDatabase } from "../../support/database.ts";

const db = await useDatabase();

test("a snapshot that is held for long is found with its owner", async () => {
  const other = await db.transaction({ isolationLevel: "repeatable read" });
  try {
    const { rows } = await other.raw("select pg_backend_pid() as pid");
    await expect
      .poll(() => findLongSnapshot(db, 0.01))
      .toEqual({
        pid: rows[0].pid,
        user: expect.any(String),
        application: "webhook-service",
        client: expect.anything(),
        state: "idle in transaction",
        seconds: expect.any(Number),
      });
    // It is not as old as that yet.
    expect(await findLongSnapshot(db)).toBeNull();
  } finally {
    await other.rollback();
  }
});
