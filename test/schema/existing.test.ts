import { describe, expect, test } from "vitest";
import { migrate, SchemaError } from "../../src/schema/migrate.ts";
import { listPartitions, PARTITIONED } from "../../src/schema/partitions.ts";
import { migratedSchema, OWN, type Schema } from "./schema.ts";

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
    const schema = await migratedSchema();
    await schema.db.raw("drop schema public cascade; create schema public");
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
