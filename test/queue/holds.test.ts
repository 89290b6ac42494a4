import { expect, onTestFinished, test } from "vitest";
import { queueTestEvent } from "../../src/events/test-events.ts";
import { type Db, rows } from "../../src/lib/pg/database.ts";
import { readBacklog } from "../../src/queue/backlog.ts";
import { openChangeFeed } from "../../src/queue/changes.ts";
import { claimPending } from "../../src/queue/claims.ts";
import { heedWishes, paceOf, type WebhookWish } from "../../src/queue/holds.ts";
import { accountForOverdue } from "../../src/queue/overdue-retries.ts";
import { assignGroups, settleGroups } from "../../src/queue/retry-groups.ts";
import { updateWebhook } from "../../src/webhooks/webhook-update.ts";
import { aKey } from "../support/builders.ts";
import {
  ALL,
  claim,
  claimRetries,
  failFirst,
  freshClaimant,
  makeEndpoint,
  openQueueDatabase,
  queue,
  queueEvents,
} from "./queue.ts";

const db = await openQueueDatabase();
const { connectionString: databaseUrl } = db.client.config.connection as { connectionString: string };

const HOUR_MS = 3_600_000;
const MINUTE_MS = 60_000;

async function urlOf(id: bigint): Promise<string> {
  const [url] = await db("webhooks")
    .where({ id: String(id) as never })
    .pluck("target_url");
  return url as string;
}

/** What the functions below use: the database, or a transaction, in which no time passes by itself. */
let at: Db = db;

async function inOneMoment(work: () => Promise<void>): Promise<void> {
  await db.transaction(async (trx) => {
    at = trx;
    await work().finally(() => {
      at = db;
    });
  });
}

/** Stores the wish of a webhook's receiver. Defaults to a refusal that asks for a minute. */
async function heed(webhookId: bigint, wish: Partial<WebhookWish> = {}): Promise<void> {
  const usual = { holdMs: MINUTE_MS, isRefusal: true, statedRate: null, acceptedRate: null };
  await heedWishes(at, [{ ...usual, webhookId, targetUrl: await urlOf(webhookId), ...wish }]);
}

/** Lets time pass for what receivers have asked for. */
async function pass(seconds: number): Promise<void> {
  const back = `- make_interval(secs => ${seconds})`;
  await at.raw(`update webhooks set held_until = held_until ${back}, paced_from = paced_from ${back}`);
}

/** The rate and the pace of a webhook, in deliveries per second, rounded to two digits. */
async function rateAndPace(id: bigint): Promise<[rate: number | null, pace: number | null]> {
  const [found] = await rows<{ rate: number | null; pace: number | null }>(
    at,
    `select round(receiver_rate::numeric, 2)::float8 as rate, round((${paceOf("w")})::numeric, 2)::float8 as pace
      from webhooks w where id = :id::bigint`,
    { id },
  );
  return [found?.rate ?? null, found?.pace ?? null];
}

test("while a receiver wants no requests, claims take nothing of its webhook, and all of its neighbours", async () => {
  const [held, free] = [await queue(db, 3), await queue(db, 2)];
  await heed(held, { holdMs: HOUR_MS });
  const claimant = await freshClaimant(db);
  const first = await claimPending(db, claimant, ALL);
  expect(first.deliveries.map(({ webhook }) => webhook.id)).toEqual([free, free]);
  expect(first).toMatchObject({ touched: 2 });
  expect(first.laterMs).toBeGreaterThan(0.9 * HOUR_MS);
  expect(await readBacklog(db, { after: 0n })).toMatchObject({ pending: 3 + 2, oldestSendableS: 0 });
  await pass(3_700);
  expect(await claim(db, claimant)).toHaveLength(3);
  expect(await claimPending(db, claimant, ALL)).toMatchObject({ touched: 0, laterMs: null });
});

test("a delivery in flight does not wait for the end of the hold that its response began", async () => {
  const id = await queue(db, 1);
  const claimant = await freshClaimant(db);
  expect(await claim(db, claimant)).toHaveLength(1);
  await heed(id, { holdMs: HOUR_MS });
  expect(await claimPending(db, claimant, ALL)).toMatchObject({ touched: 0, laterMs: null });
});

test("a test event is claimed in spite of a hold, and alone", async () => {
  const id = await queue(db, 3);
  await heed(id, { acceptedRate: 1 });
  const { id: apiKeyId } = await aKey().in(db);
  const tested = await queueTestEvent(db, "everything", {
    apiKeyId,
    webhookId: id,
    process: 1,
    payload: "{}",
  });
  expect((await claim(db)).map((each) => each.id)).toEqual([tested?.deliveryId]);
});

test("retries wait for the end of a hold, and their group says so", async () => {
  const id = await queue(db, 2);
  const claimant = await failFirst(db);
  const group = [{ runId: claimant.runId, group: 1 }];
  await db.raw("update retries set due = now() - interval '1 hour'");
  expect(await accountForOverdue(db)).toMatchObject({ count: 2 });
  await heed(id, { holdMs: HOUR_MS });
  expect(await accountForOverdue(db)).toBeNull();
  expect(await claimRetries(db, claimant)).toEqual([]);
  const [status] = await settleGroups(db, group);
  expect(status).toMatchObject({ open: 2 });
  expect(status?.delayMs).toBeGreaterThan(0.9 * HOUR_MS);
  const [listed] = await assignGroups(db, claimant.runId);
  expect(listed?.delayMs).toBeGreaterThan(0.9 * HOUR_MS);
  await pass(3_700);
  expect(await settleGroups(db, group)).toEqual([{ open: 2, delayMs: 0 }]);
  expect(await claimRetries(db, claimant)).toHaveLength(2);
});

test("soon after a hold, a claim takes few deliveries, first attempts and retries", async () => {
  const id = await queue(db, 30);
  await inOneMoment(async () => {
    const claimant = await failFirst(at);
    await queueEvents(at, [id], 30);
    await heed(id);
    await pass(60);
    const few = [await claim(at, claimant), await claimRetries(at, claimant)];
    await pass(10);
    const more = [await claim(at, claimant), await claimRetries(at, claimant)];
    expect([...few, ...more].map(({ length }) => length)).toEqual([8, 8, 22, 22]);
  });
});

test("a hold never becomes shorter", async () => {
  const id = await queue(db, 1);
  await heed(id, { holdMs: HOUR_MS });
  await heed(id, { holdMs: 1_000 });
  await heed(id, { holdMs: 0 });
  await pass(3_000);
  expect(await claim(db)).toEqual([]);
});

test("a hold and a rate are those of all webhooks of an endpoint, whose tokens they share", async () => {
  const [one, other] = [await queue(db, 5), await queue(db, 5)];
  await makeEndpoint(db, [one, other], 1_000);
  await inOneMoment(async () => {
    await heed(one, { acceptedRate: 20, holdMs: HOUR_MS });
    expect(await claim(at)).toEqual([]);
    await pass(3_600);
    expect(await rateAndPace(other)).toEqual(await rateAndPace(one));
    // A fifth of a second of 10 deliveries a second.
    expect(await claim(at)).toHaveLength(2);
  });
});

test("a webhook that has moved since the request, or moves, is not held", async () => {
  const [id, other] = [await queue(db, 1), await queue(db, 1)];
  await heed(id, { targetUrl: "https://example.com/before" });
  await heed(other, { acceptedRate: 5 });
  const url = "https://example.com/after";
  await updateWebhook(db, "everything", other, { address: { url, targetUrl: url } });
  expect(await rateAndPace(other)).toEqual([null, null]);
  expect(await claim(db)).toHaveLength(2);
});

test("the pace is half of what a receiver accepted before it refused; it grows to that within a minute, and then doubles", async () => {
  const id = await queue(db, 1);
  await inOneMoment(async () => {
    await heed(id, { acceptedRate: 8, holdMs: 10_000 });
    const paces: (number | null)[] = [];
    for (const seconds of [10, 30, 30, 60, 60, 420]) {
      await pass(seconds);
      const [rate, pace] = await rateAndPace(id);
      expect(rate).toBe(8);
      paces.push(pace && Math.round(pace));
    }
    expect(paces).toEqual([4, 6, 8, 16, 32, null]);
  });
});

/** Refusals of a receiver that accepted 8 a second before the first one, and the rate after them. */
const REFUSALS: [string, number, Partial<WebhookWish>, number][] = [
  ["of a request that was in flight", 0, { acceptedRate: 2 }, 8],
  ["at the slower pace", MINUTE_MS / 1_000, { acceptedRate: 8 }, 4],
  ["at the slower pace, with fewer by chance", MINUTE_MS / 1_000, { acceptedRate: 2 }, 4],
  ["of a burst after a long time", 600, { acceptedRate: 3 }, 3],
  ["by a receiver that has accepted nothing since", MINUTE_MS / 1_000, { acceptedRate: null }, 8],
  ["that names a lower rate", 120, { acceptedRate: 8, statedRate: 0.5 }, 0.5],
  ["that names a higher rate", 120, { acceptedRate: 9, statedRate: 100 }, 8],
  ["at a pace of nearly nothing", MINUTE_MS / 1_000, { acceptedRate: 8, statedRate: 0.001 }, 0.1],
];

test.each(REFUSALS)("a refusal %s leaves a rate of its own", async (_what, seconds, wish, expected) => {
  const id = await queue(db, 1);
  await inOneMoment(async () => {
    await heed(id, { acceptedRate: 8 });
    await pass(seconds);
    await heed(id, wish);
    const [rate, pace] = await rateAndPace(id);
    expect(rate).toBe(expected);
    expect(pace).toBeCloseTo(expected / 2);
  });
});

test("a receiver that has never accepted anything has no pace", async () => {
  const id = await queue(db, 1);
  await heed(id);
  expect(await rateAndPace(id)).toEqual([null, null]);
});

test("the rate that a receiver states with its used-up quota is the pace, unless that is slower already", async () => {
  const [stating, refusing] = [await queue(db, 1), await queue(db, 1)];
  await inOneMoment(async () => {
    for (const id of [stating, refusing]) await heed(id, { isRefusal: false, holdMs: 0, statedRate: 5 });
    expect(await rateAndPace(stating)).toEqual([null, null]);
    await heed(refusing, { acceptedRate: 4 });
    for (const id of [stating, refusing]) await heed(id, { isRefusal: false, statedRate: 5 });
    await pass(60);
    expect([await rateAndPace(stating), await rateAndPace(refusing)]).toEqual([
      [5, 5],
      [4, 2],
    ]);
    await pass(120);
    await heed(refusing, { isRefusal: false, statedRate: 5 });
    await pass(60);
    expect(await rateAndPace(refusing)).toEqual([5, 5]);
  });
});

test("of several wishes of a webhook, the longest hold and the known rate count", async () => {
  const id = await queue(db, 1);
  await inOneMoment(async () => {
    const wish = { webhookId: id, targetUrl: await urlOf(id), isRefusal: true, statedRate: null };
    await heedWishes(at, [
      { ...wish, holdMs: 1_000, acceptedRate: 6 },
      { ...wish, holdMs: HOUR_MS, acceptedRate: null },
    ]);
    await pass(3_590);
    expect(await rateAndPace(id)).toEqual([6, 3]);
    expect(await claim(at)).toEqual([]);
  });
});

test("a pace spends tokens as a rate limit does, and a claim says when the next one comes", async () => {
  const id = await queue(db, 5);
  await db("webhooks").update({ rate_at: db.raw("now() - interval '1 hour'") });
  await inOneMoment(async () => {
    const claimant = await freshClaimant(at);
    await heed(id, { acceptedRate: 1, holdMs: 0 });
    expect(await claimPending(at, claimant, ALL)).toMatchObject({ touched: 1 });
    const next = await claimPending(at, claimant, ALL);
    expect(next).toMatchObject({ touched: 0, laterMs: 2_000 });
  });
});

const SLOW = { rate_limit: 6, rate_period_seconds: 60 };

test.each([
  ["a pace of less than one a second", {}, { acceptedRate: 1, holdMs: 0 }, 2_000],
  ["a rate limit that is slower than the pace", SLOW, { acceptedRate: 1, holdMs: 0 }, 10_000],
  ["a hold that ends after the next token", SLOW, { acceptedRate: 1 }, MINUTE_MS],
])("first attempts and retries wait equally for %s", async (_what, settings, wish, expected) => {
  const id = await queue(db, 1);
  await inOneMoment(async () => {
    const claimant = await failFirst(at);
    await queueEvents(at, [id], 1);
    await at("webhooks").update({ ...settings, rate_tokens: 0, rate_at: at.fn.now() });
    await heed(id, wish);
    await assignGroups(at, claimant.runId);
    const { touched, laterMs } = await claimPending(at, claimant, ALL);
    const [group] = await settleGroups(at, [{ runId: claimant.runId, group: 1 }]);
    expect([touched, laterMs, group?.delayMs]).toEqual([0, expected, expected]);
  });
});

test("the lower one of pace and rate limit counts", async () => {
  const [slow, fast] = [await queue(db, 9), await queue(db, 9)];
  const limited = { rate_limit: 3, rate_at: db.raw("now() - interval '1 hour'") };
  await db("webhooks").update(limited);
  await heed(slow, { acceptedRate: 2, holdMs: 0 });
  await heed(fast, { acceptedRate: 100, holdMs: 0 });
  const claimed = Map.groupBy(await claim(db), ({ webhook }) => webhook.id);
  expect([claimed.get(slow)?.length, claimed.get(fast)?.length]).toEqual([1, 3]);
});

test("every process is told of a hold, also one that listens only later", async () => {
  const [id, one] = [await queue(db, 1), await queue(db, 1)];
  const endpointId = await makeEndpoint(db, [one], 1);
  const listen = async () => {
    const told: [bigint | string, number][] = [];
    const feed = await openChangeFeed(
      databaseUrl,
      () => {},
      (window, holdMs) => void told.push([window, holdMs]),
    );
    onTestFinished(() => feed.close());
    return told;
  };
  const before = await listen();
  await heed(id, { holdMs: 2 * HOUR_MS });
  await heed(one, { holdMs: HOUR_MS });
  await expect.poll(() => before.length).toBe(2);
  expect(before).toEqual([
    [id, 2 * HOUR_MS],
    [endpointId, HOUR_MS],
  ]);
  const later = await listen();
  expect(later.map(([window]) => window).toSorted()).toEqual([endpointId, id].toSorted());
});
