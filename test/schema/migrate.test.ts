import { describe, expect, test } from "vitest";
import { type Published, publishEvents } from "../../src/events/publish.ts";
import { rows } from "../../src/lib/pg/database.ts";
import { migrate } from "../../src/schema/migrate.ts";
import { listPartitions, PARTITIONED } from "../../src/schema/partitions.ts";
import { anEvent } from "../support/new-event.ts";
import { OWN, useEmptySchema } from "./schema.ts";

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
