import { randomBytes, randomUUID } from "node:crypto";
import { expect, test } from "vitest";
import { fanOutStep } from "../../src/events/fan-out.ts";
import { type Published, publishEvents } from "../../src/events/publish.ts";
import { rows } from "../../src/lib/pg/database.ts";
import { readBacklog } from "../../src/queue/backlog.ts";
import { cancelFirst } from "../../src/queue/deleted-webhooks.ts";
import { readOverview } from "../../src/stats/stats.ts";
import { createSecretBox } from "../../src/webhooks/secret-box.ts";
import { deleteWebhook } from "../../src/webhooks/webhook-deletion.ts";
import { createWebhook } from "../../src/webhooks/webhooks.ts";
import { openQueueDatabase } from "../queue/queue.ts";
import { aKey } from "../support/builders.ts";
import { anEvent } from "../support/new-event.ts";

const db = await openQueueDatabase();
const box = createSecretBox(randomBytes(32));
const MANY = 2_500;

/** Registers so many webhooks of an event type, as that many calls would; answers their ids. */
async function register(webhooks: number, process = 1): Promise<bigint[]> {
  const of = { process, n: webhooks };
  await db.raw(
    `insert into processes as p (process, revision, live) values (:process::int, :n::int, :n::int)
      on conflict (process) do update set revision = p.revision + :n::int, live = p.live + :n::int`,
    of,
  );
  const made = await rows<{ id: bigint }>(
    db,
    `insert into webhooks (process, url, target_url, api_key_id, secret, created_revision)
      select process, url, url, gen_random_uuid(), '\\x00', revision - :n::int + place from processes,
        lateral (select place, 'https://example.com/' || gen_random_uuid() as url from generate_series(1, :n::int) place) u
      where process = :process::int order by place returning id`,
    of,
  );
  return made.map(({ id }) => id);
}

async function create(): Promise<bigint> {
  const url = `https://example.com/${randomUUID()}`;
  const apiKeyId = (await aKey().in(db)).id;
  return (await createWebhook(db, box, { process: 1, url, targetUrl: url, apiKeyId }, 100_000)).webhook.id;
}

async function publish(maxInline?: number): Promise<Published> {
  const [published] = await publishEvents(db, [anEvent()], maxInline);
  return published as Published;
}

/** Runs steps until none is left; answers how many deliveries each queued. */
async function fanOut(): Promise<number[]> {
  const queued: number[] = [];
  for (let step = await fanOutStep(db); step; step = await fanOutStep(db)) {
    expect(step.missing).toBe(0);
    queued.push(step.queued);
  }
  return queued;
}

/** The webhooks that an event has a delivery for. */
const recipientsOf = (eventId: string): Promise<bigint[]> =>
  db("all_deliveries").where({ event_id: eventId }).orderBy("webhook_id").pluck("webhook_id");

test("an event for 2,500 webhooks is published without reading them, and fanned out in steps after it", async () => {
  const webhooks = await register(MANY);
  await register(3, 2);
  const [published, read] = await db.transaction(async (trx) => {
    const sql = `select (seq_tup_read + idx_tup_fetch)::int as n from pg_stat_xact_user_tables where relname = 'webhooks'`;
    const webhooksRead = async () => (await rows<{ n: number }>(trx, sql))[0]?.n ?? 0;
    // What the connection has not reported yet counts, too.
    const before = await webhooksRead();
    const [event] = await publishEvents(trx, [anEvent()]);
    return [event as Published, (await webhooksRead()) - before];
  });
  const { eventId, queued } = published;
  expect([queued, read, await recipientsOf(eventId)]).toEqual([MANY, 0, []]);
  expect(await fanOut()).toEqual([1_000, 1_000, 500]);
  expect(await recipientsOf(eventId)).toEqual(webhooks);
});

test("the overview and the backlog count deliveries as pending before the fan-out has queued them", async () => {
  await register(4);
  await publish(3);
  const pending = async () => [
    Number((await readOverview(db, "everything")).pending),
    (await readBacklog(db, { after: 0n })).pending,
  ];
  expect(await pending()).toEqual([4, 4]);
  for (const queued of [3, 1]) {
    expect(await fanOutStep(db, 3)).toMatchObject({ queued });
    expect(await pending()).toEqual([4, 4]);
  }
});

test("publishing while webhooks are created and deleted counts exactly those that get a delivery", async () => {
  const doomed = (await register(1_050)).slice(200, 220);
  const published = [await publish()];
  let changing = true;
  const whileChanging = async (work: () => Promise<unknown>) => {
    while (changing) await work();
  };
  const deleting = async () => {
    for (const id of doomed) await deleteWebhook(db, id, cancelFirst);
  };
  const changes = Promise.all([deleting(), ...Array.from({ length: 10 }, create)]);
  await Promise.all([
    changes.finally(() => (changing = false)),
    whileChanging(async () => published.push(await publish())),
    whileChanging(() => fanOutStep(db)),
  ]);
  expect(published.length).toBeGreaterThan(2);
  published.push(await publish());
  expect([published[0]?.queued, published.at(-1)?.queued]).toEqual([1_050, 1_040]);
  await fanOut();
  const counted = await rows(
    db,
    `select e.id, e.recipients, count(*)::int as there, count(distinct d.webhook_id)::int as "distinct"
      from events e join all_deliveries d on d.event_id = e.id group by 1, 2 order by 1`,
  );
  const expected = published.map(({ eventId: id, queued: n }) => ({
    id,
    recipients: n,
    there: n,
    distinct: n,
  }));
  expect(counted).toEqual(expected.sort((a, b) => (a.id < b.id ? -1 : 1)));
  expect(await db("processes").where({ process: 1 }).pluck("live")).toEqual([1_040]);
});

test("steps of several processes at once queue each delivery once", async () => {
  const webhooks = await register(MANY);
  const events = [await publish(), await publish(), await publish()];
  let queued = 0;
  // A step that finds only events that others are at answers null.
  while ((await db("fan_out").limit(1)).length > 0)
    for (const step of await Promise.all([1, 2, 3].map(() => fanOutStep(db)))) queued += step?.queued ?? 0;
  expect(queued).toBe(3 * MANY);
  for (const { eventId } of events) expect(await recipientsOf(eventId)).toEqual(webhooks);
});

test("a step leaves the event that another process is at alone, and takes the next", async () => {
  await register(1_100);
  const [first, second] = [await publish(), await publish()];
  const other = await db.transaction();
  await other.raw("select from fan_out where event_id = ? for update", [first.eventId]);
  expect(await fanOut()).toEqual([1_000, 100]);
  expect(await recipientsOf(first.eventId)).toEqual([]);
  expect(await recipientsOf(second.eventId)).toHaveLength(1_100);
  await other.rollback();
  expect(await fanOut()).toEqual([1_000, 100]);
});

test("recipients that are missing, as when rows were removed by hand, hold nothing up and are counted off", async () => {
  const webhooks = await register(1_100);
  const { eventId } = await publish();
  await db("webhooks").whereIn("id", webhooks.slice(0, 5).map(String)).delete();
  expect(await fanOutStep(db)).toEqual({ queued: 1_000, remaining: 100, missing: 0 });
  expect(await fanOutStep(db)).toEqual({ queued: 95, remaining: 5, missing: 0 });
  expect(await fanOutStep(db)).toEqual({ queued: 0, remaining: 0, missing: 5 });
  expect(await fanOutStep(db)).toBeNull();
  expect(await db("events").pluck("recipients")).toEqual([1_095]);
  expect(await recipientsOf(eventId)).toHaveLength(1_095);
});
