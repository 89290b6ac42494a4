import { randomUUID } from "node:crypto";
import { describe, expect, test } from "vitest";
import { queueTestEvent } from "../../src/events/test-events.ts";
import { type Db, rows } from "../../src/lib/pg/database.ts";
import { type Claimant, type ClaimedDelivery, claimPending, release } from "../../src/queue/claims.ts";
import { settleGroups } from "../../src/queue/retry-groups.ts";
import { ClaimedWebhooks } from "../../src/webhooks/claimed-webhooks.ts";
import { updateWebhook } from "../../src/webhooks/webhook-update.ts";
import { observed } from "../delivery/engine-parts.ts";
import { atMoment } from "../support/database.ts";
import {
  ALL,
  claim,
  claimFirstGroup,
  claimRetries,
  failFirst,
  freshClaimant,
  makeEndpoint,
  openQueueDatabase,
  queue,
  queueEvents,
  queueMany,
} from "./queue.ts";

const db = await openQueueDatabase();

/** How many of the deliveries each of the webhooks has. */
const shares = (deliveries: readonly ClaimedDelivery[], ids: readonly bigint[]) =>
  ids.map((id) => deliveries.filter(({ webhook }) => webhook.id === id).length);

/** The rows that work updates, by table, and how many of them without a write to an index (HOT). */
async function updates(work: (trx: Db) => Promise<unknown>): Promise<Record<string, [number, number]>> {
  return db.transaction(async (trx) => {
    // What the connection has not reported yet counts, too.
    const counted = () =>
      rows<{ name: string; updated: number; hot: number }>(
        trx,
        "select relname as name, n_tup_upd::int as updated, n_tup_hot_upd::int as hot from pg_stat_xact_user_tables",
      );
    const before = new Map((await counted()).map((each) => [each.name, each]));
    await work(trx);
    const changes = (await counted()).map(({ name, updated, hot }): [string, [number, number]] => [
      name,
      [updated - (before.get(name)?.updated ?? 0), hot - (before.get(name)?.hot ?? 0)],
    ]);
    return Object.fromEntries(changes.filter(([, [updated]]) => updated > 0));
  });
}

/**
 * Until PostgreSQL may use the space of dead rows again: no session has an older snapshot, such as one of autovacuum, and
 * transactions of other tests that began before have ended, which a session takes for ones that may see the rows.
 */
async function untilDeadRowsAreGone(): Promise<void> {
  const [now] = await rows<{ end: bigint }>(
    db,
    "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint as end",
  );
  const older = `select pid from pg_stat_activity
      where datname = current_database() and backend_xmin is not null and pid <> pg_backend_pid()
    union all select 0 where pg_snapshot_xmin(pg_current_snapshot())::text::bigint < :end::bigint`;
  await expect.poll(() => rows(db, older, { end: now?.end ?? 0n })).toEqual([]);
}

test("a first claim, a release and a claim of retries update no index", async () => {
  await db.raw("truncate queue, retries");
  await queueMany(db, { urlPrefix: "https://example.com/", webhooks: 5, events: 200 });
  const claimant = await freshClaimant(db);
  let deliveries: ClaimedDelivery[] = [];
  const first = async (trx: Db) => {
    deliveries = await claim(trx, claimant);
  };
  expect(await updates(first)).toEqual({ queue: [1_000, 1_000] });
  await untilDeadRowsAreGone();
  const giveBack = (trx: Db) => release(trx, claimant.workerId, deliveries);
  expect(await updates(giveBack)).toEqual({ queue: [1_000, 1_000] });
  await failFirst(db, claimant);
  expect(await updates((trx) => claimRetries(trx, claimant))).toEqual({ retries: [1_000, 1_000] });
});

test("a claim updates no index of what a rate limit counts", async () => {
  await db.raw("truncate queue");
  const ids = [await queue(db, 20), await queue(db, 20)];
  await makeEndpoint(db, ids, 50);
  const limited = { rate_limit: 50, rate_at: db.raw("now() - interval '1 hour'") };
  await db("webhooks")
    .where({ id: await queue(db, 20) })
    .update(limited);
  const claimant = await freshClaimant(db);
  const claiming = updates((trx) => claim(trx, claimant));
  expect(await claiming).toEqual({ endpoints: [1, 1], queue: [60, 60], webhooks: [1, 1] });
});

describe("a claim", () => {
  test("is fair: a webhook with a thousand pending does not hold up another's one", async () => {
    const ids = [await queue(db, 1_000), await queue(db, 1)];
    expect(shares(await claim(db, undefined, 100), ids)).toEqual([50, 1]);
  });

  test("does not lower a webhook's share for others whose deliveries are all claimed", async () => {
    await queueMany(db, { urlPrefix: "https://example.com/", webhooks: 10, events: 3 });
    expect(await claim(db)).toHaveLength(30);
    await queue(db, 200);
    expect(await claim(db, undefined, 110)).toHaveLength(110);
  });

  test("starts after a given webhook, returns where the next claim starts, and skips excluded webhooks", async () => {
    const ids = [await queue(db, 10), await queue(db, 10), await queue(db, 10)] as [bigint, bigint, bigint];
    const claimant = await freshClaimant(db);
    const from = (after: bigint, limit: number, excluded: bigint[] = []) =>
      claimPending(db, claimant, { after, limit, excluded });
    const last = await from(ids[1], 3);
    expect([shares(last.deliveries, ids), last.next]).toEqual([[0, 0, 3], null]);
    const first = await from(0n, 2);
    expect([shares(first.deliveries, ids), first.next]).toEqual([[1, 1, 0], ids[1]]);
    expect(shares((await from(0n, 20, [ids[0]])).deliveries, ids)).toEqual([0, 9, 7]);
  });

  test("visits as many webhooks as it may take deliveries, and the next one visits the others", async () => {
    const ids = await queueMany(db, { urlPrefix: "https://example.com/", webhooks: 600, events: 2 });
    const claimant = await freshClaimant(db);
    const first = await claimPending(db, claimant, { ...ALL, limit: 512 });
    expect([first.deliveries.length, first.next]).toEqual([512, ids[511]]);
    const second = await claimPending(db, claimant, { ...ALL, limit: 512, after: first.next as bigint });
    expect([second.deliveries.length, second.next]).toEqual([176, null]);
  });

  test("knows each webhook as it is at the claim, and reads none again that has not changed", async () => {
    const [same, changed] = [await queue(db, 2), await queue(db, 2)];
    const known = new ClaimedWebhooks();
    const webhooks = async () => {
      const { deliveries } = await claimPending(db, await freshClaimant(db), { ...ALL, limit: 2 }, known);
      return new Map(deliveries.map(({ webhook }) => [webhook.id, webhook]));
    };
    const before = await webhooks();
    const moved = { target_url: "https://moved.example/", secret: Buffer.of(2) };
    await db("webhooks").where({ id: changed }).update(moved);
    const after = await webhooks();
    expect(after.get(same)).toBe(before.get(same));
    const target = { origin: "https://moved.example", path: "/", host: "moved.example" };
    const secrets = [{ sealed: Buffer.of(2), expires: null }];
    expect(after.get(changed)).toMatchObject({ target, secrets });
  });

  test("knows its webhooks although other claims replace them all in the cache before the database responds", async () => {
    const [id, ...others] = [await queue(db, 1), await queue(db, 0), await queue(db, 0)];
    const known = new ClaimedWebhooks(others.length);
    const before = await known.load(db, new Set([id]));
    const responded = Promise.withResolvers<void>();
    const loaded = known.load(
      observed(db, () => responded.promise),
      new Set([id]),
    );
    await known.load(db, new Set(others));
    responded.resolve();
    expect((await loaded).get(id)).toBe(before.get(id));
    // It is no longer in the cache, so it is read again.
    const after = await known.load(db, new Set([id]));
    expect(after.get(id)).toEqual(before.get(id));
    expect(after.get(id)).not.toBe(before.get(id));
  });

  test("takes the latest test delivery of a paused webhook, and not in the next pause", async () => {
    const webhookId = await queue(db, 3);
    const pause = (paused: boolean) => updateWebhook(db, "everything", webhookId, { paused });
    const event = { apiKeyId: randomUUID(), webhookId, process: 1, payload: "{}" };
    await pause(true);
    await queueTestEvent(db, "everything", event);
    const latest = await queueTestEvent(db, "everything", event);
    const claimant = await freshClaimant(db);
    const deliveries = await claim(db, claimant);
    expect(deliveries.map(({ id }) => id)).toEqual([latest?.deliveryId]);
    for (const paused of [false, true]) await pause(paused);
    await release(db, claimant.workerId, deliveries);
    expect(await claim(db, claimant)).toEqual([]);
  });
});

describe("the rate limit of an endpoint", () => {
  /** Sets the tokens, as they are until the next claim. */
  const setTokens = (tokens: number) =>
    db("endpoints").update({ rate_tokens: tokens, rate_at: db.raw("now() + interval '1 hour'") });

  test("is divided evenly between its event types, each of which gets in turn what is left over", async () => {
    const ids = [await queue(db, 40), await queue(db, 40), await queue(db, 40)];
    const other = await queue(db, 5);
    await makeEndpoint(db, ids, 1_000);
    const claimant = await freshClaimant(db);
    const take = async (tokens: number) => {
      await setTokens(tokens);
      return shares(await claim(db, claimant), [...ids, other]);
    };
    // A webhook without an endpoint has its share beside them.
    expect(await take(8)).toEqual([3, 3, 2, 5]);
    expect(await take(7)).toEqual([2, 2, 3, 0]);
    expect(await take(9)).toEqual([3, 3, 3, 0]);
    // One token at a time reaches every type.
    expect(await take(1)).toEqual([1, 0, 0, 0]);
    expect(await take(1)).toEqual([0, 1, 0, 0]);
    expect(await take(1)).toEqual([0, 0, 1, 0]);
    expect(await take(0.9)).toEqual([0, 0, 0, 0]);
  });

  test("holds for retries too", async () => {
    const ids = [await queue(db, 6), await queue(db, 6)];
    const claimant = await failFirst(db);
    await makeEndpoint(db, ids, 1_000);
    const retry = async (tokens: number) => {
      await setTokens(tokens);
      const claimed = await claimFirstGroup(db, claimant);
      expect(claimed.limited).toEqual([{ runId: claimant.runId, group: 1 }]);
      return shares(claimed.deliveries, ids);
    };
    expect([await retry(1), await retry(1), await retry(4), await retry(100)]).toEqual([
      [1, 0],
      [0, 1],
      [2, 2],
      [3, 3],
    ]);
    // What nobody could use is left.
    expect(await db("endpoints").pluck("rate_tokens")).toEqual([94]);
  });
});

test("rate limits continue after the clock of the database was set back", async () => {
  const [alone, shared] = [await queue(db, 5), await queue(db, 5)];
  await makeEndpoint(db, [shared], 50);
  await db("webhooks").where({ id: alone }).update({ rate_limit: 50 });
  const before = { rate_tokens: 0, rate_at: db.raw("now() + interval '1 hour'") };
  await db("webhooks").update(before);
  await db("endpoints").update(before);
  expect(await claim(db)).toEqual([]);
  const ahead =
    "select from webhooks where id = ? and rate_at > now() union all select from endpoints where rate_at > now()";
  expect((await db.raw(ahead, [String(alone)])).rows).toEqual([]);
});

describe.each(["webhook", "endpoint"])("a claim of a rate-limited %s", (limited) => {
  /** A webhook with retries that are due, and pending deliveries of it, or of another webhook of the endpoint. */
  async function limit(): Promise<Claimant> {
    const retried = await queue(db, 20);
    const claimant = await failFirst(db);
    if (limited === "endpoint") await makeEndpoint(db, [retried, await queue(db, 20)], 1_000);
    else {
      await queueEvents(db, [retried], 20);
      await db("webhooks").update({ rate_limit: 1_000 });
    }
    return claimant;
  }

  /** Works half a second after the begin of a second, counted in rounds of five; the buckets had three tokens then. */
  const within = (second: number, work: (trx: Db) => Promise<unknown>) =>
    atMoment(db, `to_timestamp(5 * ceil(extract(epoch from now()) / 5) + ${second} + 0.5)`, async (trx) => {
      // Half a token more: a claim adds and subtracts the same fractional number, which can lose a little by rounding.
      const bucket = { rate_tokens: 3.5, rate_at: trx.raw("date_trunc('second', now())") };
      for (const table of ["webhooks", "endpoints"] as const) await trx(table).update(bucket);
      await work(trx);
    });

  test("leaves the tokens of one second in five to retries", async () => {
    const claimant = await limit();
    await within(0, async (trx) => {
      // What was left before may be spent.
      expect(await claimPending(trx, claimant, ALL)).toMatchObject({
        touched: 3,
        laterMs: expect.any(Number),
      });
      expect(await claimRetries(trx, claimant)).toHaveLength(20);
    });
  });

  test("leaves nothing to retries in the other seconds, nor if there are none", async () => {
    const claimant = await limit();
    const takesAll = async (trx: Db) => expect(await claim(trx, claimant)).toHaveLength(20);
    for (const second of [1, 4]) await within(second, takesAll);
    await db("retries").delete();
    await within(0, takesAll);
  });
});

describe.each([
  { what: "webhook", limit: 1, periodS: 3_600, tokenS: 3_600 },
  { what: "endpoint", limit: 30, periodS: 60, tokenS: 2 },
])("a slow rate limit of a $what, $limit in $periodS s", ({ what, limit, periodS, tokenS }) => {
  async function limited(retries = 0): Promise<Claimant> {
    const id = await queue(db, Math.max(1, retries));
    const claimant = await freshClaimant(db);
    if (retries > 0) await failFirst(db, claimant);
    else await claim(db, claimant);
    await queueEvents(db, [id], 10);
    if (what === "endpoint") await makeEndpoint(db, [id], limit);
    await db("webhooks").update({ rate_limit: limit, rate_period_seconds: periodS });
    return claimant;
  }
  /** Works at a part of the time that a token takes, in one of five such times, with so many tokens since its begin. */
  const within = (turn: number, part: number, tokens: number, work: (trx: Db) => Promise<unknown>) => {
    const start = `${5 * tokenS} * ceil(extract(epoch from now()) / ${5 * tokenS}) + ${turn * tokenS}`;
    return atMoment(db, `to_timestamp(${start} + ${part * tokenS})`, async (trx) => {
      const bucket = {
        rate_tokens: tokens,
        rate_at: trx.raw(`now() - make_interval(secs => ${part * tokenS})`),
      };
      for (const table of ["webhooks", "endpoints"] as const) await trx(table).update(bucket);
      await work(trx);
    });
  };

  test("claims a delivery per token, keeps one token at most, and tells when the next one is there", async () => {
    const claimant = await limited();
    const next = (trx: Db) => claimPending(trx, claimant, ALL);
    await within(1, 0.25, 0, async (trx) =>
      expect(await next(trx)).toMatchObject({ touched: 0, laterMs: expect.closeTo(750 * tokenS, -1) }),
    );
    await within(1, 4, 0.5, async (trx) => {
      expect(await next(trx)).toMatchObject({ touched: 1, laterMs: expect.closeTo(1_000 * tokenS, -1) });
      expect(await next(trx)).toMatchObject({ touched: 0 });
    });
  });

  test("leaves one token in five to retries, whose groups wait for it", async () => {
    const claimant = await limited(3);
    const groups = [{ runId: claimant.runId, group: 1 }];
    await within(0, 0.75, 0.5, async (trx) => {
      // Until the time of the token that is left to retries has passed.
      const wait = { touched: 0, laterMs: expect.closeTo(250 * tokenS, -1) };
      expect(await claimPending(trx, claimant, ALL)).toMatchObject(wait);
      expect(await settleGroups(trx, groups)).toEqual([{ open: 3, delayMs: 0 }]);
      const claimed = await claimFirstGroup(trx, claimant);
      expect([claimed.touched, claimed.limited]).toEqual([1, []]);
      const [{ delayMs = 0 } = {}] = await settleGroups(trx, groups);
      expect(delayMs).toBeCloseTo(1_000 * tokenS, -1);
    });
    await within(1, 0.75, 0.5, async (trx) => expect(await claim(trx, claimant)).toHaveLength(1));
  });
});

test("a customer with many busy webhooks leaves another's deliveries their share, and each of its own webhooks gets some", async () => {
  const busy = await queueMany(db, { urlPrefix: "https://busy.example/", webhooks: 99, events: 20 });
  const quiet = await queue(db, 30);
  await db("webhooks").whereIn("id", busy.map(String)).update({ customer: "busy" });
  await db("webhooks").where("id", String(quiet)).update({ customer: "quiet" });
  const claimant = await freshClaimant(db);
  const ofBusy = new Set<bigint>();
  for (let n = 0; n < 12; n += 1) {
    const claimed = await claim(db, claimant, 100);
    const ofQuiet = claimed.filter(({ webhook }) => webhook.id === quiet);
    if (n === 0) expect([claimed.length, ofQuiet.length]).toEqual([100, 30]);
    for (const { webhook } of claimed) if (webhook.id !== quiet) ofBusy.add(webhook.id);
  }
  expect(ofBusy.size).toBe(99);
});
