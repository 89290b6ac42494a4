import { expect, onTestFinished, test } from "vitest";
import { count } from "../../src/lib/pg/database.ts";
import { migrate } from "../../src/schema/migrate.ts";
import { holdTime } from "../support/held-time.ts";
import { OWN, useEmptySchema } from "./schema.ts";

/** The longest pause before the second attempt, in milliseconds. */
const MAX_PAUSE_MS = 2_000;

const schema = await useEmptySchema();

test("a migration that gets no lock gives way to publishers, whatever timeouts the role or the database has, tries again, and is made once the lock is free", async () => {
  const reading = await schema.block();
  const database = new URL(schema.url).pathname.slice(1);
  const names = ["statement_timeout", "transaction_timeout"];
  // Shorter than the wait for a lock. PostgreSQL 16 has no limit of a transaction.
  for (const name of await schema.db("pg_settings").whereIn("name", names).pluck("name"))
    await schema.db.raw(`alter database ${database} set ${name} = '500ms'`);
  onTestFinished(() => schema.db.raw(`alter database ${database} reset all`));
  const { promise: isBlocked, resolve } = Promise.withResolvers<
    { error: Error } & ReturnType<typeof holdTime>
  >();
  const onBlocked = (error: Error) => resolve({ error, ...holdTime() });
  let isDone = false;
  const migrating = migrate(schema.url, { onBlocked }).then(() => {
    isDone = true;
  });
  const waiting = "wait_event_type = 'Lock' and datname = current_database()";
  await expect.poll(() => schema.db("pg_stat_activity").whereRaw(waiting).pluck("pid")).toHaveLength(1);
  // Waits behind the migration, until that gives way; the other transaction still holds its lock.
  await schema.db.transaction(async (publishing) => {
    await publishing.raw("set local statement_timeout = 0");
    expect(await count(publishing, "update events set payload = payload where false")).toBe(0);
  });
  const { error, pass, goOn } = await isBlocked;
  expect(error).toMatchObject({ code: "55P03" });
  expect(isDone).toBe(false);
  await reading.rollback();
  pass(MAX_PAUSE_MS);
  goOn();
  await migrating;
  expect(await schema.migrations()).toEqual(OWN);
});
