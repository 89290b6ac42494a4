import { randomUUID } from "node:crypto";
import { expect, test } from "vitest";
import { createEventContents, type EventContents } from "../../src/delivery/event-contents.ts";
import { INITIAL_WINDOW } from "../../src/delivery/limits/windows.ts";
import { type Db, rows } from "../../src/lib/pg/database.ts";
import { type ClaimedDelivery, claimPending } from "../../src/queue/claims.ts";
import { endExpiredWorkers } from "../../src/queue/workers.ts";
import { ALL, freshClaimant, openQueueDatabase, queueMany } from "../queue/queue.ts";
import { aReceiver, heldReplies } from "../support/receivers.ts";
import { SimulatedTime } from "../support/simulation/simulated-time.ts";
import { until } from "../support/wait.ts";
import { claimed, freshRun, passDue, pump, queueFor, states, useEngine } from "./engine-parts.ts";

const db = await openQueueDatabase();

/** Makes every payload so many bytes long. */
const enlarge = (bytes: number) =>
  db.raw(`update events set payload = '{"N":"' || repeat('x', ?::int - 8) || '"}'`, [bytes]);

/** Claimed deliveries of events, whose payloads are so many bytes long, for each of some webhooks. */
async function claims(webhooks: number, events: number, bytes: number): Promise<ClaimedDelivery[]> {
  await queueMany(db, { urlPrefix: `https://example.com/${randomUUID()}/`, webhooks, events });
  await enlarge(bytes);
  return (await claimPending(db, await freshClaimant(db), ALL)).deliveries;
}

const bytesOf = (contents: EventContents, delivery: ClaimedDelivery) =>
  contents.of(delivery).payload?.length ?? 0;

test("payloads stay within a number of bytes, also of several claims at the same time; the others fit once these are released", async () => {
  const contents = createEventContents(db, 10_000);
  const deliveries = await claims(1, 12, 4_000);
  const parts = [0, 3, 6, 9].map((from) => deliveries.slice(from, from + 3));
  const unheld = (await Promise.all(parts.map((part) => contents.hold(part)))).flat();
  const held = deliveries.filter((each) => !unheld.includes(each));
  expect(held.map((each) => bytesOf(contents, each))).toEqual([4_000, 4_000]);
  expect(await contents.hold(unheld)).toEqual(unheld);
  for (const each of held) contents.release(each);
  expect(await contents.hold(unheld)).toHaveLength(8);
});

test("a single payload larger than all bytes is held alone, and leaves no room", async () => {
  const contents = createEventContents(db, 10_000);
  expect(contents.room).toBe(10);
  const deliveries = await claims(1, 3, 50_000);
  const unheld = await contents.hold(deliveries);
  expect(unheld).toHaveLength(2);
  expect([contents.room, await contents.hold(unheld)]).toEqual([0, unheld]);
  for (const each of deliveries) if (!unheld.includes(each)) contents.release(each);
  expect(contents.room).toBeGreaterThan(0);
  expect(await contents.hold(unheld)).toHaveLength(1);
});

test("the deliveries of an event hold one payload, until the last of these is released", async () => {
  const contents = createEventContents(db, 5_000);
  const deliveries = await claims(20, 1, 4_000);
  expect(await contents.hold(deliveries)).toEqual([]);
  for (const each of deliveries.slice(1)) contents.release(each);
  const [last] = deliveries as [ClaimedDelivery];
  expect(bytesOf(contents, last)).toBe(4_000);
  const another = await claims(1, 1, 4_000);
  expect(await contents.hold(another)).toEqual(another);
  contents.release(last);
  expect(await contents.hold(another)).toEqual([]);
});

test("there is no payload for an event whose payload was erased, or that is not stored", async () => {
  const contents = createEventContents(db, 10_000);
  const deliveries = await claims(1, 2, 4_000);
  const [erased, missing] = deliveries as [ClaimedDelivery, ClaimedDelivery];
  await db("events").where({ id: erased.eventId }).update({ payload: null });
  await db("events").where({ id: missing.eventId }).delete();
  expect(await contents.hold(deliveries)).toEqual([]);
  expect(deliveries.map((each) => contents.of(each).payload)).toEqual([null, null]);
});

/**
 * Contents that held a payload of 400 bytes until its last delivery released it. The event's payload has 300 bytes since.
 *
 * @returns other deliveries of the event
 */
async function released(contents: EventContents, webhooks: number): Promise<ClaimedDelivery[]> {
  const [first, ...others] = (await claims(webhooks, 1, 400)) as [ClaimedDelivery, ...ClaimedDelivery[]];
  await contents.hold([first]);
  contents.release(first);
  await enlarge(300);
  return others.length > 0 ? others : [first];
}

/** The bytes of the payload that a delivery gets, which it releases. */
async function bytesFor(contents: EventContents, delivery?: ClaimedDelivery): Promise<number> {
  if (!delivery) throw new Error("no delivery");
  expect(await contents.hold([delivery])).toEqual([]);
  const bytes = bytesOf(contents, delivery);
  contents.release(delivery);
  return bytes;
}

const withToken = (delivery: ClaimedDelivery | undefined, token: object) =>
  ({ ...delivery, token: { ...delivery?.token, ...token } }) as ClaimedDelivery;

test("a released payload stays for five seconds since the last use while other webhooks are to get the event", async () => {
  const time = new SimulatedTime();
  const contents = createEventContents(db, 10_000, time.clock);
  const [second, third] = await released(contents, 4);
  for (const delivery of [second, third]) {
    await time.run(time.now + 5_000);
    expect(await bytesFor(contents, delivery)).toBe(400);
  }
  await time.run(time.now + 5_001);
  expect(await bytesFor(contents, third)).toBe(300);
});

// An erasure may have come before a retry or a resend.
test.each<[string, number, object]>([
  ["for an event that all webhooks have got", 1, {}],
  ["for a retry", 3, { table: "retries" }],
  ["for a resend", 3, { attempts: 4 }],
])("a released payload is read again %s", async (_what, webhooks, token) => {
  const contents = createEventContents(db, 10_000);
  const [delivery] = await released(contents, webhooks);
  expect(await bytesFor(contents, withToken(delivery, token))).toBe(300);
});

test("a released payload is held by first attempts also while it is read for a retry", async () => {
  const contents = createEventContents(db, 10_000);
  const [second, third] = await released(contents, 3);
  const retry = withToken(second, { table: "retries" });
  const reading = contents.hold([retry]);
  // From here on, its query is in progress.
  await new Promise((resolve) => setImmediate(resolve));
  expect(await contents.hold([third as ClaimedDelivery])).toEqual([]);
  expect(await reading).toEqual([]);
  contents.release(third as ClaimedDelivery);
  expect(bytesOf(contents, retry)).toBe(400);
  contents.release(retry);
  expect(await bytesFor(contents, retry)).toBe(300);
});

test("released payloads make room for others, and are at most an eighth of all, the latest ones", async () => {
  const small = createEventContents(db, 10_000);
  const [other] = await released(small, 2);
  const larger = await claims(1, 2, 5_000);
  expect(await small.hold(larger)).toEqual([]);
  for (const each of larger) small.release(each);
  expect(await bytesFor(small, other)).toBe(5_000);
  // 5,000 of payloads that no delivery holds, 12 of them; the next one replaces the first.
  const contents = createEventContents(db, 40_000);
  const all: (ClaimedDelivery | undefined)[] = [];
  for (let n = 0; n < 13; n += 1) all.push((await released(contents, 2))[0]);
  expect(await bytesFor(contents, all[2])).toBe(400);
  expect(await bytesFor(contents, all[0])).toBe(300);
});

/** Makes the payload of the oldest event unreadable: it gets one chunk more than its length allows. */
async function damageOldest(of: Db): Promise<void> {
  await of.raw(
    `update events set payload = '{"N":"' || (select string_agg(md5(n::text), '') from generate_series(1, 1000) n) || '"}'
      where id = (select min(id::text)::uuid from events)`,
  );
  const [found] = await rows<{ oid: number; name: string }>(
    of,
    `select t.oid::int, t.oid::regclass::text as name from events e join pg_class p on p.oid = e.tableoid
      join pg_class t on t.oid = p.reltoastrelid order by e.id limit 1`,
  );
  const { oid, name } = found as { oid: number; name: string };
  // PostgreSQL lets nobody change such a table.
  const setKind = (kind: string) => of.raw("update pg_class set relkind = ? where oid = ?", [kind, oid]);
  await setKind("r");
  await of.raw(`insert into ${name} select chunk_id, 1000, chunk_data from ${name} where chunk_seq = 0`);
  await setKind("t");
}

test("an event that PostgreSQL cannot read fails its deliveries with a reason; the others are delivered", async () => {
  const parts = await useEngine({ RETRY_INITIAL_DELAY: "1m" });
  const { url, received } = await aReceiver();
  await queueFor(parts, url, { webhooks: 1, events: 3 });
  await damageOldest(parts.db);
  const runId = await freshRun(parts.db);
  expect(await pump(parts.engine, runId)).toMatchObject({ delivered: 2, retrying: 1, end: "done" });
  // A retry that nothing else is loaded with.
  const retried = await passDue(parts.db, parts.engine, runId);
  expect(retried).toMatchObject({ sent: 1, retrying: 1, complete: true });
  expect(received).toHaveLength(2);
  const error = "PostgreSQL cannot read the event; see the service's log";
  const errors = await rows(parts.db, "select error from all_attempts where error is not null");
  expect(errors).toEqual([{ error }, { error }]);
});

test.each([
  ["gives back the deliveries that do not fit, and sends them later", false],
  ["takes over what a dead worker had claimed a little at a time", true],
])("a process with little memory for payloads %s", async (_does, isTakenOver) => {
  const events = 10;
  const parts = await useEngine({ DELIVERY_MEMORY: "1MiB" });
  const held = heldReplies();
  const { url, received } = await aReceiver(held.reply);
  await queueFor(parts, url, { webhooks: 1, events });
  await enlarge(250_000);
  if (isTakenOver) {
    await claimPending(parts.db, await freshClaimant(parts.db, -1), ALL);
    await endExpiredWorkers(parts.db);
  }
  const pumped = pump(parts.engine, await freshRun(parts.db));
  await until(async () => held.waiting === INITIAL_WINDOW && (await claimed(parts)) === 4);
  held.answer();
  expect(await pumped).toMatchObject({ sent: events, delivered: events, end: "done" });
  expect(await states(parts)).toEqual({ "delivered 1": events });
  expect(received).toHaveLength(events);
});
