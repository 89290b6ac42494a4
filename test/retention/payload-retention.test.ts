import { describe, expect, test } from "vitest";
import { rows } from "../../src/lib/pg/database.ts";
import { sendAgain } from "../../src/log/send-again.ts";
import { retentionStep } from "../../src/retention/retention.ts";
import { PARTITIONED } from "../../src/schema/partitions.ts";
import { readOverview } from "../../src/stats/stats.ts";
import { foldAll, queue } from "../queue/queue.ts";
import { waitingQueries } from "../support/grpc-calls.ts";
import { idAt, type Stored } from "../support/stored-deliveries.ts";
import { DAY_MS, RETENTION_DAYS, useRetention } from "./retention-parts.ts";

const { db, begin, maintain, daysAgo, storeEvent, retain, retainAndDrop, partitionOf } = await useRetention();

describe("payloads", () => {
  const PAYLOAD_DAYS = 3;
  /** A step with another number of days for payloads; answers the events that it looked at. */
  const eraseStep = async (days = PAYLOAD_DAYS) =>
    (await retentionStep(db, db, RETENTION_DAYS, days)).payloads;
  /** Looks until nothing is left to look at. */
  async function erase(): Promise<number> {
    let looked = 0;
    for (let step = await eraseStep(); step > 0; step = await eraseStep()) looked += step;
    return looked;
  }
  /** Whether payloads, excerpts of responses and search terms are still there, by the age of the events. */
  const kept = () =>
    rows(
      db,
      `select e.payload is not null as payload, d.response_start is not null and d.response_headers is not null as response,
          a.response_start is not null and a.response_headers is not null as attempt,
          exists (select from search_terms s where s.event_id = e.id) as terms
        from events e join attempts a on a.delivery_id = e.id left join deliveries d on d.id = e.id order by e.id`,
    );
  const ALL = { payload: true, response: true, attempt: true, terms: true };
  const NONE = { payload: false, response: false, attempt: false, terms: false };

  /** An event with a delivery of its id, an earlier attempt, excerpts of its responses, and a search term. */
  async function storeWithExcerpts(created: Date, delivery: Partial<Stored> = {}): Promise<string> {
    const id = idAt(created);
    const excerpts = { response_start: "the payload", response_headers: "[]" };
    const { eventId } = await storeEvent(created, { id, eventId: id, ...delivery });
    await db("events").where({ id: eventId }).update({ id });
    await db("deliveries").where({ id }).update(excerpts);
    const attempt = { delivery_id: id, number: 1, started: created, duration_ms: 1 };
    await db("attempts").insert({ ...attempt, ...excerpts });
    await db("search_terms").insert({ term: 1, event_id: id });
    return id;
  }

  test("are erased after PAYLOAD_RETENTION_DAYS with what may repeat them, and everything else stays", async () => {
    for (const days of [5, 4, 2]) await storeWithExcerpts(daysAgo(days));
    // Without PAYLOAD_RETENTION_DAYS.
    await retain();
    expect(await kept()).toEqual([ALL, ALL, ALL]);
    expect(await erase()).toBe(2);
    expect(await kept()).toEqual([NONE, NONE, ALL]);
    expect(await db("deliveries").pluck("outcome")).toEqual(["delivered", "delivered", "delivered"]);
    // What was looked at is not looked at again.
    expect(await erase()).toBe(0);
  });

  test("of an event with an open delivery are kept until it has ended; payloads of other events of its day are erased", async () => {
    const noon = daysAgo(5).setUTCHours(12, 0, 0, 0);
    await storeWithExcerpts(daysAgo(6.5));
    await storeWithExcerpts(new Date(noon));
    await storeWithExcerpts(new Date(noon + 1), { state: "retrying" });
    await storeWithExcerpts(new Date(noon + 2));
    await storeWithExcerpts(daysAgo(3.5));
    expect(await erase()).toBe(5);
    const open = { ...ALL, response: false };
    expect(await kept()).toEqual([NONE, NONE, open, NONE, NONE]);
    expect(await erase()).toBe(0);
    // Fewer days, and then more: what had to stay is not forgotten.
    expect(await eraseStep(20)).toBe(0);
    await db("retries").delete();
    expect(await eraseStep(20)).toBe(0);
    expect(await erase()).toBeGreaterThan(0);
    expect(await kept()).toEqual(Array(5).fill(NONE));
    expect(await erase()).toBe(0);
    expect(await db("settings").whereLike("name", "payloads_kept%")).toEqual([]);
  });

  test("of an event with a delivery that is being sent again stay until it has ended", async () => {
    const webhookId = await queue(db, 0);
    const { deliveryId } = await storeEvent(daysAgo(5), { webhookId });
    const payloads = () => db("events").whereNotNull("payload").pluck("user_id");
    const sending = await begin("select");
    await sendAgain(sending, "everything", deliveryId, RETENTION_DAYS);
    const erased = erase();
    await expect.poll(() => waitingQueries({ context: { db } })).toBe(1);
    await sending.commit();
    expect([await erased, await payloads()]).toEqual([1, ["u"]]);
    await db("queue").where("id", deliveryId).delete();
    expect([await erase(), await payloads()]).toEqual([1, []]);
  });
});

describe("statistics", () => {
  test("count what the log still has: hours go no sooner than the deliveries that they count", async () => {
    const webhookId = await queue(db, 0);
    // The first minute of the day of which the last minute is to be kept.
    const boundary = daysAgo(RETENTION_DAYS + 7).getTime();
    const created = new Date(boundary - (boundary % DAY_MS));
    const { deliveryId } = await storeEvent(created, { webhookId, state: "failed" });
    await foldAll(db);
    await retain();
    expect(await db("deliveries").pluck("outcome")).toEqual(["failed"]);
    expect(await readOverview(db, "everything")).toMatchObject({ failed: 1n });
    await sendAgain(db, "everything", deliveryId, RETENTION_DAYS + 10);
    expect(await readOverview(db, "everything")).toMatchObject({ failed: 0n, pending: 1n });
  });

  test("no longer count deliveries of a dropped partition that ended after its time, each once", async () => {
    const [created, late] = [daysAgo(40), daysAgo(8)];
    const webhookId = await queue(db, 0);
    await storeEvent(created, { webhookId, state: "failed" });
    for (const state of ["failed", "cancelled", "filtered"] as const)
      await storeEvent(created, { webhookId, state, finished: late });
    // Of the same hour, and still stored.
    await storeEvent(late, { webhookId, state: "failed" });
    await foldAll(db);
    expect(await readOverview(db, "everything")).toMatchObject({ failed: 3n, cancelled: 1n, filtered: 1n });
    const vacuum = await maintain(partitionOf("deliveries", created));
    expect(await retainAndDrop()).toEqual([]);
    await vacuum.commit();
    expect(await retainAndDrop()).toHaveLength(PARTITIONED.length);
    expect(await db("deliveries").pluck("outcome")).toEqual(["failed"]);
    expect(await readOverview(db, "everything")).toMatchObject({ failed: 1n, cancelled: 0n, filtered: 0n });
    expect(await db("rollup_hours").orderBy("webhook_id").pluck("failed")).toEqual([1, 1]);
  });
});

test("accounts of runs are deleted a week after they closed, accounts of runs that did nothing after a day, with their groups", async () => {
  const account = (name: string, sent: number, closed: Date | null) =>
    db("runs").insert({ workflow_id: name, first_run_id: "r", lease_until: new Date(), sent, closed });
  await account("busy, long ago", 1, daysAgo(7.1));
  await account("busy", 1, daysAgo(6.9));
  await account("empty, long ago", 0, daysAgo(1.1));
  await account("empty", 0, daysAgo(0.9));
  await account("open", 0, null);
  await db.raw(
    `insert into runs (workflow_id, first_run_id, lease_until, closed)
      select 'many', n::text, now(), now() - interval '2 days' from generate_series(1, 1000) n`,
  );
  await db.raw("insert into run_groups (run_id, webhook_id, group_number) select id, 1, 1 from runs");
  expect((await retain()).map(({ runs }) => runs)).toEqual([1_000, 2]);
  expect(await db("runs").orderBy("id").pluck("workflow_id")).toEqual(["busy", "empty", "open"]);
  expect(await db("run_groups").orderBy("run_id").pluck("run_id")).toEqual(
    await db("runs").orderBy("id").pluck("id"),
  );
});
