import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Db, openDatabase, rows } from "../../src/db/database.ts";
import { migrate } from "../../src/db/migrate.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";

const BUILT = ["deliveries_cancelled", "deliveries_failed", "deliveries_failed_webhook"];

let database: TestDatabase;
let db: Db;
beforeAll(async () => {
  database = await createTestDatabase();
  db = openDatabase(database.url, { max: 4 });
});
afterAll(async () => {
  await db.destroy();
  await database.drop();
});

/** As it was before the indexes of failed deliveries, but for one whose build was cut short. */
async function beforeIndexes(): Promise<void> {
  await db("knex_migrations").where("name", "0006-failed-deliveries").delete();
  await db.raw("drop index if exists deliveries_cancelled, deliveries_failed_webhook");
  await db.raw("update pg_index set indisvalid = false where indexrelid = 'deliveries_failed'::regclass");
}

async function usable(): Promise<string[]> {
  const found = await rows<{ name: string }>(
    db,
    `select indexrelid::regclass::text as name from pg_index
      where indisvalid and indexrelid::regclass::text = any(:names::text[]) order by 1`,
    { names: BUILT },
  );
  return found.map(({ name }) => name);
}

const insert = (into: Db) => into("deliveries").insert({ event_id: randomUUID(), webhook_id: 1 });

test("indexes of a table in use are built while others write, by one of the processes that start together", async () => {
  await beforeIndexes();
  // Publishing, for as long as it likes: an index that locks the table would wait for it, and all others for the index.
  const publishing = await db.transaction();
  await insert(publishing);
  const migrating = Promise.all([migrate(database.url), migrate(database.url), migrate(database.url)]);
  await expect
    .poll(() =>
      rows(
        db,
        "select from pg_stat_activity where query like '% index concurrently %' and wait_event_type = 'Lock' and datname = current_database()",
      ),
    )
    .toHaveLength(1);
  await insert(db).timeout(5_000);
  await publishing.commit();
  await migrating;
  expect(await usable()).toEqual(BUILT);
  expect(await db("knex_migrations").where("name", "0006-failed-deliveries")).toHaveLength(1);
});

test("a migrating process that dies leaves what the next one takes up", async () => {
  await beforeIndexes();
  const publishing = await db.transaction();
  await insert(publishing);
  const dying = migrate(database.url).catch((error: Error) => error);
  await expect
    .poll(() =>
      rows(
        db,
        `select pg_terminate_backend(pid) from pg_stat_activity
            where query like '% index concurrently %' and wait_event_type = 'Lock' and datname = current_database()`,
      ),
    )
    .toHaveLength(1);
  expect(await dying).toBeInstanceOf(Error);
  await publishing.commit();
  await migrate(database.url);
  expect(await usable()).toEqual(BUILT);
});

test("an upgrade shortens what is stored of keys that operators chose, and nothing of those that the service made", async () => {
  await db("knex_migrations").where("name", "0011-chosen-key-prefixes").delete();
  const insert = (prefix: string) =>
    db("api_keys").insert({
      id: randomUUID(),
      name: prefix,
      prefix,
      secret_sha256: Buffer.from(prefix),
      permissions: [1],
    });
  await insert("chosen-by-an");
  await insert("whk_AbCdEfGh");
  await migrate(database.url);
  const kept = await db("api_keys").whereIn("name", ["chosen-by-an", "whk_AbCdEfGh"]).pluck("prefix");
  expect(kept.sort()).toEqual(["chos", "whk_AbCdEfGh"]);
});
