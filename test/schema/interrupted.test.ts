import { describe, expect, test } from "vitest";
import { migrate } from "../../src/schema/migrate.ts";
import { OWN, useEmptySchema } from "./schema.ts";

const schema = await useEmptySchema();

const errorOf = (migrating: Promise<unknown>) => migrating.catch((error: Error) => error);

describe("a migration that is interrupted", () => {
  test("by an error leaves nothing of it, and the next process makes it", async () => {
    const holding = await schema.holdUp();
    const failing = errorOf(migrate(schema.url));
    await schema.db.raw("select pg_cancel_backend(?)", [await schema.heldUp()]);
    expect(await failing).toMatchObject({ code: "57014" });
    await holding.rollback();
    expect((await schema.tables()).filter((name) => !name.startsWith("knex_"))).toEqual([]);
    await migrate(schema.url);
    expect(await schema.migrations()).toEqual(OWN);
  });

  test("by the death of its process leaves what the next one takes up", async () => {
    const holding = await schema.holdUp();
    const dying = errorOf(migrate(schema.url));
    await schema.heldUp();
    // All its connections at once, so that it cannot put anything right.
    await schema.db.raw(
      `select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and application_name = 'webhook-service-instance' and pid <> pg_backend_pid()
          and pid not in (select pid from pg_stat_activity where query like 'create table rollup_deltas ()%')`,
    );
    expect(await dying).toBeInstanceOf(Error);
    await holding.rollback();
    // A process that is killed leaves its lock taken; this one has freed it over another connection.
    expect(await schema.db("knex_migrations_lock").update({ is_locked: 1 })).toBe(1);
    await migrate(schema.url);
    expect(await schema.migrations()).toEqual(OWN);
    expect(await schema.tables()).toContain("rollup_deltas");
  });

  test("by its signal ends, also while it waits for a lock", async () => {
    await schema.block();
    const stopping = new AbortController();
    const onBlocked = () => stopping.abort(new Error("stopped"));
    await expect(migrate(schema.url, { signal: stopping.signal, onBlocked })).rejects.toThrow("stopped");
  });
});
