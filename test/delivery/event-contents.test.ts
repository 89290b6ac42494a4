import { randomUUID } from "node:crypto";
import { afterEach, describe, expect, test } from "vitest";
import { type Receiver, type Reply, startReceiver } from "../../demo/receiver.ts";
import { type Db, rows } from "../../src/db/database.ts";
import { type ClaimedDelivery, claimPending } from "../../src/db/queue/claims.ts";
import { assignGroups } from "../../src/db/queue/retry-groups.ts";
import { endExpiredWorkers } from "../../src/db/queue/workers.ts";
import { EventContents } from "../../src/delivery/event-contents.ts";
import { ALL, freshClaimant, openQueueDatabase, queueMany } from "../db/queue/queue.ts";
import { trustedAuthority } from "../support/test-service.ts";
import { type EngineParts, freshRun, pump, queueFor, startEngine } from "./engine-parts.ts";

/** Makes every payload so many bytes long. */
const enlarge = (db: Db, bytes: number) =>
  db.raw(`update events set payload = '{"N":"' || repeat('x', ?::int - 8) || '"}'`, [bytes]);

describe("the payloads that a process holds", async () => {
  const db = await openQueueDatabase();

  async function claimed(webhooks: number, events: number, bytes: number): Promise<ClaimedDelivery[]> {
    await queueMany(db, { urlPrefix: `https://example.com/${randomUUID()}/`, webhooks, events });
    await enlarge(db, bytes);
    return (await claimPending(db, await freshClaimant(db), ALL)).deliveries;
  }

  const bytesHeld = (contents: EventContents, held: readonly ClaimedDelivery[]) => {
    const payloads = new Map(held.map((each) => [each.eventId, contents.of(each).payload?.length ?? 0]));
    return [...payloads.values()].reduce((sum, bytes) => sum + bytes, 0);
  };
  const without = (all: readonly ClaimedDelivery[], unheld: readonly ClaimedDelivery[]) =>
    all.filter((each) => !unheld.includes(each));

  test("stay within a number of bytes; the deliveries that do not fit are answered, and fit once others are released", async () => {
    const contents = new EventContents(db, 10_000);
    const deliveries = await claimed(1, 5, 4_000);
    const unheld = await contents.hold(deliveries);
    const held = without(deliveries, unheld);
    expect([held.length, unheld.length]).toEqual([2, 3]);
    expect(bytesHeld(contents, held)).toBe(8_000);
    expect(await contents.hold(unheld)).toEqual(unheld);
    for (const each of held) contents.release(each);
    expect(await contents.hold(unheld)).toHaveLength(1);
  });

  test("are one for all deliveries of an event, until the last of these is released", async () => {
    const contents = new EventContents(db, 5_000);
    const deliveries = await claimed(20, 1, 4_000);
    expect(await contents.hold(deliveries)).toEqual([]);
    for (const each of deliveries.slice(1)) contents.release(each);
    const [last] = deliveries as [ClaimedDelivery];
    expect(contents.of(last).payload).toHaveLength(4_000);
    const another = await claimed(1, 1, 4_000);
    expect(await contents.hold(another)).toEqual(another);
    contents.release(last);
    expect(await contents.hold(another)).toEqual([]);
  });

  describe("after the last delivery has released them", () => {
    /** A delivery of an event for several webhooks, held and released; and others of the event, whose payload has changed since. */
    async function released(contents: EventContents, webhooks: number): Promise<ClaimedDelivery[]> {
      const [first, ...others] = await claimed(webhooks, 1, 400);
      await contents.hold([first as ClaimedDelivery]);
      contents.release(first as ClaimedDelivery);
      await enlarge(db, 300);
      return others.length > 0 ? others : [first as ClaimedDelivery];
    }

    /** The bytes of the payload that a delivery gets, which it releases. */
    async function bytesFor(contents: EventContents, delivery: ClaimedDelivery): Promise<number> {
      expect(await contents.hold([delivery])).toEqual([]);
      const bytes = contents.of(delivery).payload?.length ?? 0;
      contents.release(delivery);
      return bytes;
    }

    test("stay while other webhooks are to get the event, one to two intervals since the last use", async () => {
      const contents = new EventContents(db, 10_000);
      const others = await released(contents, 4);
      const [second, third] = others as [ClaimedDelivery, ClaimedDelivery];
      expect(await bytesFor(contents, second)).toBe(400);
      contents.dropUnused();
      expect(await bytesFor(contents, third)).toBe(400);
      contents.dropUnused();
      contents.dropUnused();
      expect(await bytesFor(contents, third)).toBe(300);
    });

    test("do not stay once as many webhooks have got the event as are to get it", async () => {
      const contents = new EventContents(db, 10_000);
      const [only] = (await released(contents, 1)) as [ClaimedDelivery];
      expect(await bytesFor(contents, only)).toBe(300);
    });

    test("are read again for retries and resends, which an erasure may have come before", async () => {
      const contents = new EventContents(db, 10_000);
      const [other] = (await released(contents, 3)) as [ClaimedDelivery];
      for (const token of [
        { ...other.token, table: "retries" as const },
        { ...other.token, attempts: 4 },
      ]) {
        expect(await bytesFor(contents, { ...other, token })).toBe(300);
      }
    });

    test("are held by first attempts also while they are read for a retry", async () => {
      const contents = new EventContents(db, 10_000);
      const [second, third] = (await released(contents, 3)) as [ClaimedDelivery, ClaimedDelivery];
      const retry = { ...second, token: { ...second.token, table: "retries" as const } };
      const reading = contents.hold([retry]);
      // From here on, its query is in progress.
      await new Promise((resolve) => setImmediate(resolve));
      expect(await contents.hold([third])).toEqual([]);
      expect(await reading).toEqual([]);
      contents.release(third);
      expect(contents.of(retry).payload).toHaveLength(400);
      contents.release(retry);
      expect(await bytesFor(contents, retry)).toBe(300);
    });

    test("make room for others", async () => {
      const contents = new EventContents(db, 10_000);
      const [other] = (await released(contents, 2)) as [ClaimedDelivery];
      const larger = await claimed(1, 2, 5_000);
      expect(await contents.hold(larger)).toEqual([]);
      for (const each of larger) contents.release(each);
      expect(await bytesFor(contents, other)).toBe(5_000);
    });

    test("are at most an eighth of all, the latest ones", async () => {
      // 5,000 of payloads that no delivery holds, 12 of them; the next one replaces two.
      const contents = new EventContents(db, 40_000);
      const all: ClaimedDelivery[] = [];
      for (let n = 0; n < 13; n += 1) all.push(...(await released(contents, 2)).slice(0, 1));
      const [oldest, , older] = all as [ClaimedDelivery, ClaimedDelivery, ClaimedDelivery];
      expect(await bytesFor(contents, older)).toBe(400);
      expect(await bytesFor(contents, oldest)).toBe(300);
    });
  });

  test("may be a single larger one, which is held alone", async () => {
    const contents = new EventContents(db, 10_000);
    const deliveries = await claimed(1, 3, 50_000);
    const unheld = await contents.hold(deliveries);
    expect(unheld).toHaveLength(2);
    expect(contents.room).toBe(0);
    expect(await contents.hold(unheld)).toEqual(unheld);
    for (const each of without(deliveries, unheld)) contents.release(each);
    expect(contents.room).toBeGreaterThan(0);
    expect(await contents.hold(unheld)).toHaveLength(1);
  });

  test("stay within the bytes also when several claims are held at the same time", async () => {
    const contents = new EventContents(db, 10_000);
    const deliveries = await claimed(1, 12, 4_000);
    const parts = [0, 3, 6, 9].map((from) => deliveries.slice(from, from + 3));
    const unheld = (await Promise.all(parts.map((part) => contents.hold(part)))).flat();
    expect(bytesHeld(contents, without(deliveries, unheld))).toBe(8_000);
  });

  test("are nothing for an event whose payload was erased, or that is not stored", async () => {
    const contents = new EventContents(db, 10_000);
    const deliveries = await claimed(1, 2, 4_000);
    const [erased, missing] = deliveries as [ClaimedDelivery, ClaimedDelivery];
    await db("events").where({ id: erased.eventId }).update({ payload: null });
    await db("events").where({ id: missing.eventId }).delete();
    expect(await contents.hold(deliveries)).toEqual([]);
    expect(deliveries.map((each) => contents.of(each).payload)).toEqual([null, null]);
  });
});

const ends: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

async function start(
  reply: Reply,
  settings: Record<string, string> = {},
): Promise<{ parts: EngineParts; receiver: Receiver }> {
  const parts = await startEngine({ DELIVERY_TIMEOUT: "60s", ...settings });
  const receiver = await startReceiver(await (await trustedAuthority()).issue(["localhost"]), reply);
  ends.push(parts.end, receiver.close);
  return { parts, receiver };
}

/** Makes the payload of the oldest event unreadable: it gets one chunk more than its length allows. */
async function damageOldest(db: Db): Promise<void> {
  await db.raw(
    `update events set payload = '{"N":"' || (select string_agg(md5(n::text), '') from generate_series(1, 1000) n) || '"}'
      where id = (select min(id::text)::uuid from events)`,
  );
  const [found] = await rows<{ oid: number; name: string }>(
    db,
    `select t.oid::int, t.oid::regclass::text as name from events e join pg_class p on p.oid = e.tableoid
      join pg_class t on t.oid = p.reltoastrelid order by e.id limit 1`,
  );
  const { oid, name } = found as { oid: number; name: string };
  // PostgreSQL lets nobody change such a table.
  const setKind = (kind: string) => db.raw("update pg_class set relkind = ? where oid = ?", [kind, oid]);
  await setKind("r");
  await db.raw(`insert into ${name} select chunk_id, 1000, chunk_data from ${name} where chunk_seq = 0`);
  await setKind("t");
}

test("an event that PostgreSQL cannot read fails its deliveries with a reason; the others are delivered", async () => {
  const { parts, receiver } = await start(() => 200);
  await queueFor(parts, receiver.url, { webhooks: 2, events: 5 });
  await damageOldest(parts.db);
  const runId = await freshRun(parts.db);
  expect(await pump(parts.engine, runId)).toMatchObject({ delivered: 8, retrying: 2, end: "done" });
  expect(receiver.received).toHaveLength(8);
  const failed = () =>
    rows(parts.db, "select number, error from all_attempts where error is not null order by 1");
  const error = "PostgreSQL cannot read the event; see the service's log";
  expect(await failed()).toEqual(Array(2).fill({ number: 1, error }));
  // A retry that nothing else is loaded with.
  await parts.db.raw("update retries set due = now() - interval '1 second'");
  await assignGroups(parts.db, runId);
  const group = { runId, group: 1 };
  const passed = await parts.engine.retries.run(
    group,
    { horizonMs: 100, forMs: 60_000 },
    new AbortController().signal,
  );
  expect(passed).toMatchObject({ sent: 1, retrying: 1, complete: true });
  expect(await failed()).toHaveLength(3);
});

describe("a process with little memory for payloads", () => {
  const delivered = ({ db }: EngineParts) =>
    rows(db, "select state, attempts, count(*)::int as n from all_deliveries group by 1, 2");

  /** Claims everything for a worker that is dead. */
  async function claimAsDead({ db }: EngineParts, events: number): Promise<void> {
    expect((await claimPending(db, await freshClaimant(db, -1), ALL)).touched).toBe(events);
    await endExpiredWorkers(db);
  }

  test.each([
    { what: "gives back the deliveries that do not fit, and sends them later", events: 20 },
    {
      what: "takes over what a dead worker had claimed a little at a time",
      events: 100,
      before: claimAsDead,
    },
  ])("$what", async ({ events, before }) => {
    const answer = Promise.withResolvers<number>();
    const { parts, receiver } = await start(() => answer.promise, { DELIVERY_MEMORY: "1MiB" });
    await queueFor(parts, receiver.url, { webhooks: 1, events });
    await enlarge(parts.db, 250_000);
    await before?.(parts, events);
    const pumped = pump(parts.engine, await freshRun(parts.db));
    await expect.poll(() => receiver.received.length).toBe(4);
    const lives = "select from queue where claimed_by = any(array(select id from workers))";
    await expect.poll(async () => (await rows(parts.db, lives)).length).toBe(4);
    answer.resolve(200);
    expect(await pumped).toMatchObject({ sent: events, delivered: events, end: "done" });
    expect(await delivered(parts)).toEqual([{ state: "delivered", attempts: 1, n: events }]);
    expect(receiver.received).toHaveLength(events);
  });

  test("sends payloads larger than that one at a time", async () => {
    let [inFlight, most] = [0, 0];
    const { parts, receiver } = await start(
      async () => {
        inFlight += 1;
        most = Math.max(most, inFlight);
        await new Promise((resolve) => setTimeout(resolve, 20));
        inFlight -= 1;
        return 200;
      },
      { DELIVERY_MEMORY: "1MiB" },
    );
    await queueFor(parts, receiver.url, { webhooks: 1, events: 5 });
    await enlarge(parts.db, 1_500_000);
    expect(await pump(parts.engine, await freshRun(parts.db))).toMatchObject({ sent: 5, delivered: 5 });
    expect(most).toBe(1);
    expect(receiver.received.every(({ body }) => body.length === 1_500_000)).toBe(true);
  });
});
