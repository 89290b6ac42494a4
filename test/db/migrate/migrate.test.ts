import { describe, expect, test } from "vitest";
import { rows } from "../../../src/db/database.ts";
import { type Published, publishEvents } from "../../../src/db/events/publish.ts";
import { migrate, SchemaError } from "../../../src/db/migrate.ts";
import { listPartitions, PARTITIONED } from "../../../src/db/partitions.ts";
import { anEvent } from "../../support/new-event.ts";
import { migratedSchema, OWN, type Schema, useEmptySchema } from "./schema.ts";

const schema = await useEmptySchema();

describe("an empty database", () => {
  test("gets the schema once, by one of several processes that start together", async () => {
    await Promise.all(Array.from({ length: 5 }, () => migrate(schema.url)));
    expect(await schema.migrations()).toEqual(OWN);
    const [published] = (await publishEvents(schema.db, [anEvent()])) as [Published];
    expect(published).toMatchObject({ queued: 0, duplicate: false });
  });

  test("is waited for outside the database by a process that finds another one migrating", async () => {
    const holding = await schema.holdUp();
    let done = 0;
    const migrating = Promise.all([1, 2, 3].map(() => migrate(schema.url).then(() => (done += 1))));
    await schema.heldUp();
    const waiting = `select from pg_locks l join pg_stat_activity a using (pid)
      where l.locktype = 'advisory' and not l.granted and a.datname = current_database()`;
    expect(await rows(schema.db, waiting)).toEqual([]);
    expect(done).toBe(0);
    await holding.rollback();
    await migrating;
    expect(await schema.migrations()).toEqual(OWN);
  });

  test("gets months as partitions with a long retention", async () => {
    await migrate(schema.url, { retentionDays: 365 });
    for (const table of PARTITIONED) {
      const partitions = await listPartitions(schema.db, table);
      expect(partitions.length).toBeGreaterThan(0);
      expect(partitions.filter(({ from }) => from.getUTCDate() !== 1)).toEqual([]);
    }
  });
});

describe("an existing schema", () => {
  test("of this version stays as it is, and gets the partitions of the coming week", async () => {
    const schema = await migratedSchema();
    const before = await schema.tables();
    for (const table of PARTITIONED)
      for (const { name } of await listPartitions(schema.db, table))
        await schema.db.raw(`drop table ${name}`);
    await migrate(schema.url);
    expect(await schema.tables()).toEqual(before);
    expect(await schema.migrations()).toEqual(OWN);
  });

  test("of a newer version is used as it is", async () => {
    const schema = await migratedSchema();
    await schema.db("knex_migrations").insert({ name: "9999-newer", batch: 9, migration_time: new Date() });
    await schema.db.raw("alter table webhooks add column newer text");
    const before = await schema.tables();
    await migrate(schema.url);
    expect(await schema.migrations()).toEqual([...OWN, "9999-newer"]);
    expect(await schema.tables()).toEqual(before);
  });

  async function expectRefused({ url }: Schema, message: RegExp): Promise<void> {
    const refused = await migrate(url).catch((error: Error) => error);
    expect(refused).toBeInstanceOf(SchemaError);
    expect(refused).toMatchObject({ name: "SchemaError", message: expect.stringMatching(message) });
  }

  test("of version 0.1 is refused, with what to do about it, and left as it is", async () => {
    await schema.db.raw("create table deliveries as select gen_random_uuid() as id, 'pending' as state");
    await expectRefused(schema, /version 0\.1.*DATABASE_URL.*empty database.*DATA_DIR/);
    expect([await schema.tables(), await schema.db("deliveries").pluck("state")]).toEqual([
      ["deliveries"],
      ["pending"],
    ]);
  });

  test("with other migrations than this version's is refused, and left as it is", async () => {
    const schema = await migratedSchema();
    await schema.db("knex_migrations").where({ name: "0001-initial" }).update({ name: "0001-another" });
    await expectRefused(schema, /0001-another.*0001-initial.*DATABASE_URL/);
    expect(await schema.migrations()).toEqual(["0001-another", ...OWN.slice(1)]);
  });
});
