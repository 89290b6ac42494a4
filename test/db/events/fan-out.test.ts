import { randomBytes, randomUUID } from "node:crypto";
import { beforeEach, expect, test } from "vitest";
import { count, rows } from "../../../src/db/database.ts";
import { readBacklog } from "../../../src/db/deliveries/backlog.ts";
import { imbalance, readLedger } from "../../../src/db/deliveries/ledger.ts";
import { readOverview } from "../../../src/db/deliveries/stats.ts";
import { erasePayloads } from "../../../src/db/events/erase.ts";
import { fanOutStep } from "../../../src/db/events/fan-out.ts";
import { MAX_INLINE_RECIPIENTS, type Published, publishEvents } from "../../../src/db/events/publish.ts";
import { claimPending } from "../../../src/db/queue/claims.ts";
import { createSecretBox } from "../../../src/db/webhooks/secret-box.ts";
import { cancelOfDeleted, createWebhook, deleteWebhook } from "../../../src/db/webhooks/webhooks.ts";
import { anEvent } from "../../support/new-event.ts";
import { ALL, freshClaimant, openQueueDatabase } from "../queue/queue.ts";

const db = await openQueueDatabase();
const box = createSecretBox(randomBytes(32));
const apiKeyId = randomUUID();
const MANY = 2_500;

beforeEach(() =>
  db("api_keys")
    .insert({ id: apiKeyId, name: "k", prefix: "p", secret_sha256: randomBytes(32), permissions: [1] })
    .onConflict()
    .ignore(),
);

/** Registers so many webhooks of an event type, as that many calls would; answers their ids. */
async function register(webhooks: number, process = 1): Promise<bigint[]> {
  await count(
    db,
    `insert into processes as p (process, revision, live) values (:process::int, :n::int, :n::int)
      on conflict (process) do update set revision = p.revision + :n::int, live = p.live + :n::int`,
    { process, n: webhooks },
  );
  const made = await rows<{ id: bigint }>(
    db,
    `insert into webhooks (process, url, target_url, api_key_id, secret, created_revision)
      select process, url, url, :apiKeyId::uuid, '\\x00', revision - :n::int + place from processes,
        lateral (select place, 'https://example.com/' || gen_random_uuid() as url from generate_series(1, :n::int) place) u
      where process = :process::int order by place returning id`,
    { process, n: webhooks, apiKeyId },
  );
  return made.map(({ id }) => id);
}

const event = (process = 1) => anEvent({ apiKeyId, process });

async function publish(process = 1): Promise<Published> {
  const [published] = await publishEvents(db, [event(process)]);
  return published as Published;
}

async function create(process = 1): Promise<bigint> {
  const url = `https://example.com/${randomUUID()}`;
  const { webhook } = await createWebhook(db, box, { process, url, targetUrl: url, apiKeyId }, 100_000);
  return webhook.id;
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

/** The webhooks that an event has a delivery for, wherever it is. */
const recipientsOf = async (eventId: string) =>
  (
    await rows<{ id: bigint }>(
      db,
      "select webhook_id as id from all_deliveries where event_id = :eventId::uuid order by 1",
      { eventId },
    )
  ).map(({ id }) => id);

const recordedCount = async (eventId: string) =>
  (await db("events").where({ id: eventId }).pluck("recipients"))[0];

test("an event for 2,500 webhooks is fanned out in steps, after it has been published", async () => {
  const webhooks = await register(MANY);
  await register(3, 2);
  const { eventId, queued } = await publish();
  expect(queued).toBe(MANY);
  expect(await recordedCount(eventId)).toBe(MANY);
  expect(await recipientsOf(eventId)).toEqual([]);
  expect(await fanOutStep(db)).toEqual({ queued: 1_000, remaining: 1_500, missing: 0 });
  expect(await recipientsOf(eventId)).toEqual(webhooks.slice(0, 1_000));
  expect(await fanOutStep(db)).toEqual({ queued: 1_000, remaining: 500, missing: 0 });
  expect(await fanOutStep(db)).toEqual({ queued: 500, remaining: 0, missing: 0 });
  expect(await fanOutStep(db)).toBeNull();
  expect(await recipientsOf(eventId)).toEqual(webhooks);
  expect(await db("fan_out").pluck("event_id")).toEqual([]);
});

test("the overview and the backlog count deliveries as pending before the fan-out has queued them", async () => {
  await register(4);
  await publishEvents(db, [event()], 3);
  const pending = async () => {
    const overview = await readOverview(db, "everything");
    const backlog = await readBacklog(db, { after: 0n });
    return [Number(overview.pending), backlog.pending];
  };
  expect(await pending()).toEqual([4, 4]);
  for (const queued of [3, 1]) {
    expect(await fanOutStep(db, 3)).toMatchObject({ queued });
    expect(await pending()).toEqual([4, 4]);
  }
});

test("an event whose payload is erased gets no further deliveries; those it has are cancelled", async () => {
  const webhooks = await register(MANY);
  const { eventId } = await publish();
  await fanOutStep(db);
  expect(await erasePayloads(db, "u", 10)).toEqual({ erased: 1, cancelled: 1_000 });
  expect(await fanOutStep(db)).toBeNull();
  expect(await recipientsOf(eventId)).toEqual(webhooks.slice(0, 1_000));
  expect(await recordedCount(eventId)).toBe(1_000);
  expect(imbalance(await readLedger(db))).toBe(0n);
});

test("an event for as many webhooks as one statement takes is not fanned out, one for more is", async () => {
  const webhooks = await register(MAX_INLINE_RECIPIENTS);
  const { eventId } = await publish();
  expect(await recipientsOf(eventId)).toEqual(webhooks);
  expect(await fanOutStep(db)).toBeNull();
  await create();
  const wide = await publish();
  expect(wide.queued).toBe(MAX_INLINE_RECIPIENTS + 1);
  expect(await fanOut()).toEqual([MAX_INLINE_RECIPIENTS, 1]);
});

test("publishing an event for 2,500 webhooks reads none of them", async () => {
  await register(MANY);
  const read = await db.transaction(async (trx) => {
    const webhooksRead = async () => {
      const [found] = await rows<{ n: bigint }>(
        trx,
        `select seq_tup_read + idx_tup_fetch as n from pg_stat_xact_user_tables where relname = 'webhooks'`,
      );
      return found?.n ?? 0n;
    };
    const before = await webhooksRead();
    await publishEvents(trx, [event()]);
    return (await webhooksRead()) - before;
  });
  expect(read).toBe(0n);
});

test("events of wide and narrow types go in together, and the same again queues nothing", async () => {
  const [wide, narrow] = [await register(1_200), await register(2, 2)];
  const events = [event(1), event(2), event(3), event(1)];
  const published = (await publishEvents(db, events)) as Published[];
  expect(published.map(({ queued }) => queued)).toEqual([1_200, 2, 0, 1_200]);
  const again = (await publishEvents(db, events)) as Published[];
  expect(again).toEqual(published.map(({ eventId }) => ({ eventId, queued: 0, duplicate: true })));
  expect(await fanOut()).toEqual([1_000, 200, 1_000, 200]);
  const ids = published.map(({ eventId }) => eventId) as [string, string, string, string];
  expect(await Promise.all(ids.map(recipientsOf))).toEqual([wide, narrow, [], wide]);
});

test("recipients and their number are those of the moment of publishing, whatever is created and deleted meanwhile", async () => {
  const before = await register(MANY);
  // Gone before: no recipient.
  for (const id of before.splice(10, 3)) await deleteWebhook(db, id);
  const { eventId, queued } = await publish();
  expect(queued).toBe(before.length);
  const late: bigint[] = [];
  const change = async (...deleted: (bigint | undefined)[]) => {
    late.push(await create(), await create());
    for (const id of deleted) await deleteWebhook(db, id as bigint);
  };
  // One whose turn has not come, before and after each step, the first and the last of all.
  await change(before[0], before.at(-1));
  expect(await fanOutStep(db)).toMatchObject({ queued: 1_000 });
  await change(before[500], before[1_500]);
  expect(await fanOutStep(db)).toMatchObject({ queued: 1_000 });
  await change(before[2_300], late[0]);
  expect(await fanOut()).toEqual([before.length - 2_000]);
  expect(await recipientsOf(eventId)).toEqual(before);
  expect(await recordedCount(eventId)).toBe(before.length);
  // The next one sees what there is then.
  const next = await publish();
  expect(next.queued).toBe(before.length - 5 + late.length - 1);
  await fanOut();
  expect(await recipientsOf(next.eventId)).toHaveLength(next.queued);
});

test("publishing while webhooks are created and deleted counts exactly those that get a delivery", async () => {
  const webhooks = await register(1_050);
  const doomed = webhooks.slice(200, 220);
  const published = [await publish()];
  let changing = true;
  const changes = async () => {
    await Promise.all([
      (async () => {
        for (const id of doomed) await deleteWebhook(db, id);
      })(),
      (async () => {
        for (let n = 0; n < 10; n += 1) await create();
      })(),
    ]);
    changing = false;
  };
  await Promise.all([
    changes(),
    (async () => {
      while (changing) published.push(await publish());
    })(),
    (async () => {
      while (changing) await fanOutStep(db);
    })(),
  ]);
  expect(published.length).toBeGreaterThan(2);
  published.push(await publish());
  expect([published[0]?.queued, published.at(-1)?.queued]).toEqual([1_050, 1_040]);
  await fanOut();
  const counted = await rows<{ id: string; recipients: number; there: number; distinct: number }>(
    db,
    `select e.id, e.recipients, count(*)::int as there, count(distinct d.webhook_id)::int as distinct
      from events e join all_deliveries d on d.event_id = e.id group by 1, 2 order by 1`,
  );
  expect(counted).toEqual(
    published
      .map(({ eventId, queued: n }) => ({ id: eventId, recipients: n, there: n, distinct: n }))
      .sort((a, b) => (a.id < b.id ? -1 : 1)),
  );
  expect(await db("processes").where({ process: 1 }).pluck("live")).toEqual([1_040]);
});

test("steps of several processes at once queue each delivery once", async () => {
  const webhooks = await register(MANY);
  const events = [await publish(), await publish(), await publish()];
  const steps = async () => {
    const queued: number[] = [];
    // A step that finds only events that others are at answers null.
    for (let idle = 0; idle < 3; ) {
      const step = await fanOutStep(db);
      if (step) queued.push(step.queued);
      idle = step ? 0 : idle + 1;
    }
    return queued;
  };
  const queued = await Promise.all([steps(), steps(), steps()]);
  expect(queued.flat().reduce((sum, n) => sum + n, 0)).toBe(3 * MANY);
  for (const { eventId } of events) expect(await recipientsOf(eventId)).toEqual(webhooks);
});

test("a step leaves the event that another process is at alone, and takes the next", async () => {
  await register(1_100);
  const [first, second] = [await publish(), await publish()];
  const other = await db.transaction();
  await other.raw("select from fan_out where event_id = ? for update", [first.eventId]);
  expect(await fanOutStep(db)).toMatchObject({ queued: 1_000 });
  expect(await recipientsOf(second.eventId)).toHaveLength(1_000);
  expect(await fanOutStep(db)).toMatchObject({ queued: 100 });
  expect(await fanOutStep(db)).toBeNull();
  await other.rollback();
  expect(await fanOut()).toEqual([1_000, 100]);
});

test("a webhook that is deleted before its turn gets its delivery, which ends as cancelled", async () => {
  const webhooks = await register(1_200);
  const { eventId } = await publish();
  const doomed = webhooks.at(-1) as bigint;
  await deleteWebhook(db, doomed);
  // Long after: nothing else would bring a delivery any more.
  await db.raw("update webhooks set deleted = now() - interval '1 day' where id = ?", [String(doomed)]);
  expect(await cancelOfDeleted(db)).toBe(0);
  expect(await fanOut()).toEqual([1_000, 200]);
  const { deliveries } = await claimPending(db, await freshClaimant(db), { ...ALL, after: doomed - 1n });
  expect(deliveries).toEqual([]);
  expect(await cancelOfDeleted(db)).toBe(1);
  expect(await db("deliveries").select("event_id", "webhook_id", "outcome", "reason")).toEqual([
    { event_id: eventId, webhook_id: doomed, outcome: "cancelled", reason: "webhook deleted" },
  ]);
  expect(await cancelOfDeleted(db)).toBe(0);
  expect(await db("webhooks").whereNotNull("emptied").pluck("id")).toEqual([doomed]);
});

test("recipients that are missing, as when rows were removed by hand, hold nothing up and are counted off", async () => {
  const webhooks = await register(1_100);
  const { eventId } = await publish();
  await db("webhooks").whereIn("id", webhooks.slice(0, 5).map(String)).delete();
  expect(await fanOutStep(db)).toEqual({ queued: 1_000, remaining: 100, missing: 0 });
  expect(await fanOutStep(db)).toEqual({ queued: 95, remaining: 5, missing: 0 });
  expect(await fanOutStep(db)).toEqual({ queued: 0, remaining: 0, missing: 5 });
  expect(await fanOutStep(db)).toBeNull();
  expect(await recordedCount(eventId)).toBe(1_095);
  expect(await recipientsOf(eventId)).toHaveLength(1_095);
});
