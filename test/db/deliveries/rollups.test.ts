import { expect, test } from "vitest";
import { rows } from "../../../src/db/database.ts";
import {
  countsSince,
  deleteOldRollups,
  foldDeltas,
  LATENCY_BOUNDS_MS,
} from "../../../src/db/deliveries/rollups.ts";
import { sendAgain, sendManyAgain } from "../../../src/db/deliveries/send-again.ts";
import { readHistory, readOverview, webhookStats } from "../../../src/db/deliveries/stats.ts";
import { firstIdOf } from "../../../src/db/partitions.ts";
import { type ClaimedDelivery, claimGroup, claimPending } from "../../../src/db/queue/claims.ts";
import { endExpired } from "../../../src/db/queue/endings.ts";
import { recordAttempts } from "../../../src/db/queue/results.ts";
import { assignGroups } from "../../../src/db/queue/retry-groups.ts";
import { deleteWebhook, listWebhookIds } from "../../../src/db/webhooks/webhooks.ts";
import { storeDeliveries } from "../../support/stored-deliveries.ts";
import { ALL, freshClaimant, NO_WAIT, openQueueDatabase, queue, result, SPACING } from "../queue/queue.ts";

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

const db = await openQueueDatabase();

/** Records an attempt of each delivery; the answer and how long it took depend on its place. */
async function answer(deliveries: readonly ClaimedDelivery[], status: (n: number) => number): Promise<void> {
  const results = deliveries.map((delivery, n) => ({ ...result(delivery, status(n)), durationMs: n * 7 }));
  await recordAttempts(db, results, NO_WAIT);
}

/** A retry of everything that waits for one, in vain. */
async function retryInVain(runId: number): Promise<void> {
  const claimant = { ...(await freshClaimant(db)), runId };
  for (const { group } of await assignGroups(db, runId)) {
    const claim = { group, limit: 1_000, excluded: [] };
    await answer((await claimGroup(db, claimant, claim)).deliveries, () => 500);
  }
}

/** The counts of each webhook, and of webhook 0 for all together. */
interface Counted {
  webhook_id: bigint;
  attempts: bigint;
  delivered: bigint;
  failed: bigint;
  cancelled: bigint;
  failed_attempts: bigint;
  total_ms: bigint;
  longest_ms: number;
}

const SUMS = `sum(attempts)::bigint as attempts, sum(delivered)::bigint as delivered, sum(failed)::bigint as failed,
  sum(cancelled)::bigint as cancelled, sum(failed_attempts)::bigint as failed_attempts, sum(total_ms)::bigint as total_ms, greatest(0, max(longest_ms)) as longest_ms`;

/** What the rollups of a unit and the deltas that are not folded say, as readers add them up. */
const counted = (unit: "minute" | "hour") =>
  rows<Counted>(
    db,
    `select webhook_id, ${SUMS} from (${countsSince(unit, "true", "true")}) c group by 1 order by 1`,
  );

/** What the log and the attempts say. */
const logged = () =>
  rows<Counted>(
    db,
    `with each as (
      select webhook_id, 0 as attempts, (outcome = 'delivered')::int as delivered, (outcome = 'failed')::int as failed,
        (outcome = 'cancelled')::int as cancelled, 0 as failed_attempts, 0 as total_ms, 0 as longest_ms from deliveries
      union all
      select d.webhook_id, 1, 0, 0, 0, (a.status >= 300)::int, a.duration_ms, a.duration_ms
      from all_attempts a join all_deliveries d on d.id = a.delivery_id
    )
    select webhook_id, ${SUMS} from (
      select * from each
      union all select 0, attempts, delivered, failed, cancelled, failed_attempts, total_ms, longest_ms from each
    ) e
    group by 1 order by 1`,
  );

/** Outcomes by webhook and hour, or minute, in which they came. */
const outcomes = (unit: "minute" | "hour") =>
  rows(
    db,
    `select webhook_id, start, sum(delivered)::int as delivered, sum(failed)::int as failed,
        sum(cancelled)::int as cancelled
      from (${countsSince(unit, "true", "true")}) c group by 1, 2
      having sum(delivered) <> 0 or sum(failed) <> 0 or sum(cancelled) <> 0 order by 1, 2`,
  );

const loggedOutcomes = (unit: "minute" | "hour") =>
  rows(
    db,
    `select webhook_id, date_trunc('${unit}', finished) as start, sum((outcome = 'delivered')::int)::int as delivered,
        sum((outcome = 'failed')::int)::int as failed, sum((outcome = 'cancelled')::int)::int as cancelled
      from (select webhook_id, finished, outcome from deliveries union all select 0, finished, outcome from deliveries) d
      group by 1, 2 order by 1, 2`,
  );

async function expectExact(): Promise<void> {
  const log = await logged();
  for (const unit of ["minute", "hour"] as const) {
    expect(await counted(unit)).toEqual(log);
    expect(await outcomes(unit)).toEqual(await loggedOutcomes(unit));
  }
}

/** Delivers, fails, cancels and sends again; calls `between` after each kind of step. */
async function mixed(between: () => Promise<void>): Promise<void> {
  const [kept, failing, doomed] = [await queue(db, 40), await queue(db, 30), await queue(db, 20)];
  const claimant = await freshClaimant(db);
  const { deliveries } = await claimPending(db, claimant, { ...ALL, limit: 60 });
  await answer(deliveries, (n) => (n % 3 === 0 ? 500 : 200));
  await between();
  const inFlight = (await claimPending(db, claimant, { ...ALL, limit: 9 })).deliveries;
  await deleteWebhook(db, doomed);
  await between();
  await answer(inFlight, (n) => (n % 2 === 0 ? 500 : 200));
  await between();
  for (let retry = 1; retry <= 3; retry += 1) {
    await retryInVain(claimant.runId);
    await between();
  }
  // As if what has happened so far had happened three hours ago.
  await db.raw(`update deliveries set finished = finished - interval '3 hours';
    update rollup_deltas set minute = minute - interval '3 hours';
    update rollup_minutes set start = start - interval '3 hours';
    update rollup_hours set start = start - interval '3 hours'`);
  await between();
  const ended = { states: ["failed", "cancelled"] as const };
  const again = await sendManyAgain(db, "everything", ended, { limit: 1_000, retentionDays: 30 });
  expect(again.sent).toBeGreaterThan(0);
  expect(again.skipped).toBeGreaterThan(0);
  const [delivered] = await db("deliveries")
    .where({ outcome: "delivered" })
    .whereNot("webhook_id", String(doomed));
  await sendAgain(db, "everything", delivered.id, 30);
  await between();
  await answer((await claimPending(db, claimant, { ...ALL, limit: 10 })).deliveries, () => 200);
  await between();
  await endExpired(db, firstIdOf(new Date(Date.now() + HOUR_MS)), 1_000);
  await between();
  expect(await db("deliveries").distinct("webhook_id").orderBy("webhook_id").pluck("webhook_id")).toEqual([
    kept,
    failing,
    doomed,
  ]);
}

test("what is not folded yet is exact against the log, whatever became of the deliveries", async () => {
  await mixed(expectExact);
  expect(await db("rollup_hours").pluck("webhook_id")).toEqual([]);
});

test("so are the rollups, folded at once", async () => {
  await mixed(async () => {
    while ((await foldDeltas(db)) > 0);
    expect(await db("rollup_deltas").pluck("id")).toEqual([]);
    await expectExact();
  });
});

test("so is what is half folded", async () => {
  let steps = 0;
  await mixed(async () => {
    steps += 1;
    if (steps % 2 === 0) await foldDeltas(db);
    await expectExact();
  });
  expect(steps).toBeGreaterThan(8);
});

/** Deliveries that have ended in the last two days, away from the edges of what readers ask for, a delta each. */
async function manyEnded(deliveries: number): Promise<void> {
  const webhooks = [await queue(db, 3), await queue(db, 3)];
  const now = Date.now();
  await storeDeliveries(
    db,
    Array.from({ length: deliveries }, (_, n) => {
      const hoursAgo = 0.5 + (n % 40);
      const at = new Date(now - (hoursAgo > 22 && hoursAgo < 27 ? 21.5 : hoursAgo) * HOUR_MS);
      return {
        webhookId: webhooks[n % 2] as bigint,
        state: (["delivered", "failed", "cancelled", "delivered"] as const)[n % 4] ?? "delivered",
        created: at,
        finished: at,
      };
    }),
  );
  const { deliveries: claimed } = await claimPending(db, await freshClaimant(db), ALL);
  await answer(claimed, (n) => (n % 2 === 0 ? 500 : 200));
}

/** Health is judged by folding, so that it alone changes. */
const HEALTH = { healthyWebhooks: 0n, degradedWebhooks: 0n, failingWebhooks: 0n };

const allWebhooks = async () =>
  (await listWebhookIds(db, "everything", null, { after: null, limit: 1_000 })).map(({ id }) => id);

const whatReadersSee = async (end: Date) => ({
  overview: { ...(await readOverview(db, "everything")), ...HEALTH },
  webhooks: (await webhookStats(db, await allWebhooks())).webhooks,
  history: await readHistory(db, "everything", 24, end),
});

test("folding changes nothing that readers see, step by step", async () => {
  await manyEnded(1_200);
  const end = new Date();
  const before = await whatReadersSee(end);
  expect(before.overview).toMatchObject({ attemptsLastDay: 6n, failed: 300n, cancelled: 300n });
  expect(before.overview.deliveredLastDay).toBeLessThan(603n);
  expect(before.webhooks).toHaveLength(2);
  expect(before.history.filter(({ delivered }) => delivered > 0n).length).toBeGreaterThan(10);
  const steps: number[] = [];
  for (;;) {
    const folded = await foldDeltas(db);
    expect(await whatReadersSee(end)).toEqual(before);
    if (folded === 0) break;
    steps.push(folded);
  }
  expect(steps).toEqual([500, 500, 201]);
});

test("readers see the same while two processes fold at once, and each delta is folded once", async () => {
  await manyEnded(1_200);
  const end = new Date();
  const before = await whatReadersSee(end);
  let folding = true;
  let folded = 0;
  const folder = async () => {
    // A step that finds another process at it answers 0, too.
    for (let idle = 0; idle < 3; ) {
      const step = await foldDeltas(db);
      folded += step;
      idle = step === 0 ? idle + 1 : 0;
    }
  };
  const reader = async () => {
    while (folding) expect(await whatReadersSee(end)).toEqual(before);
  };
  const reading = reader();
  await Promise.all([folder(), folder()]);
  folding = false;
  await reading;
  expect(folded).toBe(1_201);
  expect(await db("rollup_deltas").pluck("id")).toEqual([]);
  await expectExact();
});

test("a call of one process does nothing while another one folds", async () => {
  await manyEnded(10);
  const other = await db.transaction();
  await other.raw("select pg_advisory_xact_lock(7242110923)");
  expect(await foldDeltas(db)).toBe(0);
  await other.rollback();
  expect(await foldDeltas(db)).toBe(11);
});

test("results that are recorded while deltas are folded are counted once", async () => {
  for (let n = 0; n < 4; n += 1) await queue(db, 50);
  const { deliveries } = await claimPending(db, await freshClaimant(db), ALL);
  let recording = true;
  const folding = (async () => {
    while (recording) await foldDeltas(db);
  })();
  await Promise.all(
    deliveries.map((delivery, n) => recordAttempts(db, [result(delivery, n % 2 ? 200 : 500)], SPACING)),
  );
  recording = false;
  await folding;
  await expectExact();
  while ((await foldDeltas(db)) > 0);
  await expectExact();
});

test("attempts are counted by how long they took, each in the class of its duration", async () => {
  const durations = [0, 1, 2, 15, 16, 999, 11_585, 11_586, 1_000_000];
  await queue(db, durations.length);
  const { deliveries } = await claimPending(db, await freshClaimant(db), ALL);
  for (const [n, delivery] of deliveries.entries()) {
    const durationMs = durations[n] as number;
    await recordAttempts(db, [{ ...result(delivery, 200), durationMs }], SPACING);
    // In steps: classes of several foldings are added up.
    await foldDeltas(db);
  }
  const [all] = await db("rollup_hours").where({ webhook_id: 0 }).pluck<number[][]>("latency");
  const expected = Array.from({ length: LATENCY_BOUNDS_MS.length + 1 }, () => 0);
  for (const duration of durations) {
    const place = LATENCY_BOUNDS_MS.findIndex((bound) => duration < bound);
    const index = place === -1 ? LATENCY_BOUNDS_MS.length : place;
    expected[index] = (expected[index] as number) + 1;
  }
  expect(all).toEqual(expected);
});

test("no class of durations is one that nothing can fall into", () => {
  const lower = [0, ...LATENCY_BOUNDS_MS];
  expect(LATENCY_BOUNDS_MS.filter((upper, n) => upper <= (lower[n] as number))).toEqual([]);
});

test("minutes go once their hours are enough, and hours with the deliveries that they count", async () => {
  const webhookId = await queue(db, 0);
  const at = (hoursAgo: number) => new Date(Date.now() - hoursAgo * HOUR_MS);
  await storeDeliveries(
    db,
    [1, 25, 27, 48, 100].map((hours) => ({
      webhookId,
      state: "delivered" as const,
      created: at(hours),
      finished: at(hours),
    })),
  );
  await foldDeltas(db);
  await deleteOldRollups(db, at(72));
  const left = async (table: string) => {
    const starts = await db(table).where({ webhook_id: 0 }).orderBy("start", "desc").pluck<Date[]>("start");
    return starts.map((start) => Math.floor((Date.now() - start.getTime()) / HOUR_MS));
  };
  expect(await left("rollup_minutes")).toEqual([1, 25]);
  expect(await left("rollup_hours")).toHaveLength(4);
});

test("one step folds the attempts of ten thousand webhooks, before the statement's time is over", async () => {
  await db.raw(
    `insert into rollup_deltas (minute, webhook_ids, changes, durations_ms)
      select date_trunc('minute', now()), array_agg(n), array_agg(0::smallint), array_agg(n % 900)
      from generate_series(1, 10000) n group by n / 100`,
  );
  expect(await foldDeltas(db)).toBe(101);
  const [minutes] = await rows<{ webhooks: number; attempts: bigint; classes: bigint }>(
    db,
    `select count(*)::int as webhooks, sum(failed_attempts) as attempts,
        sum((select sum(n) from unnest(latency) n))::bigint as classes
      from rollup_minutes where webhook_id > 0`,
  );
  expect(minutes).toEqual({ webhooks: 10_000, attempts: 10_000n, classes: 10_000n });
});

test("in minutes and hours that version 0.2.0 counted, attempts that did not deliver count as failed", async () => {
  await queue(db, 6);
  const claimant = await freshClaimant(db);
  const { deliveries } = await claimPending(db, claimant, ALL);
  await answer(deliveries.slice(0, 3), (n) => (n === 0 ? 200 : 500));
  await foldDeltas(db);
  // It has no such column, and leaves it out.
  await db.raw(
    "update rollup_minutes set failed_attempts = null; update rollup_hours set failed_attempts = null",
  );
  const failed = async () => (await counted("minute")).map(({ failed_attempts }) => failed_attempts);
  expect(await failed()).toEqual([2n, 2n]);
  await answer(deliveries.slice(3), () => 500);
  await foldDeltas(db);
  expect(await failed()).toEqual([5n, 5n]);
  const [row] = await counted("hour");
  expect(row).toMatchObject({ attempts: 6n, failed_attempts: 5n });
});
