import { describe, expect, test } from "vitest";
import { rows } from "../../src/lib/pg/database.ts";
import { type Claimant, type ClaimedDelivery, claimPending } from "../../src/queue/claims.ts";
import { endBeyond, endInterrupted } from "../../src/queue/endings.ts";
import { recordAttempts } from "../../src/queue/results.ts";
import { adoptRetries, leavePaused } from "../../src/queue/retry-groups.ts";
import { closeExpiredRuns, closeRun } from "../../src/queue/runs.ts";
import { endExpiredWorkers, removeWorker, renewWorker } from "../../src/queue/workers.ts";
import { PATIENCE_MS } from "../support/patience.ts";
import {
  claim,
  claimRetries,
  failFirst,
  freshClaimant,
  freshWorker,
  makeEndpoint,
  openQueueDatabase,
  queue,
  queueMany,
  record,
  result,
  SPACING,
} from "./queue.ts";

const db = await openQueueDatabase();

const sum = (numbers: readonly number[]) => numbers.reduce((total, n) => total + n, 0);
/** Does the work several times at once. */
const atOnce = <T>(times: number, work: (n: number) => Promise<T>) =>
  Promise.all(Array.from({ length: times }, (_, n) => work(n)));
const freshClaimants = (n: number) => atOnce(n, () => freshClaimant(db));

describe("claims at the same time", () => {
  test("share nothing and leave nothing", async () => {
    await queueMany(db, { urlPrefix: "https://example.com/", webhooks: 2, events: 100 });
    const claimants = await freshClaimants(5);
    const ids: string[] = [];
    await atOnce(5, async (n) => {
      for (
        let some = await claim(db, claimants[n], 17);
        some.length > 0;
        some = await claim(db, claimants[n], 17)
      )
        ids.push(...some.map(({ id }) => id));
    });
    expect([ids.length, new Set(ids).size]).toEqual([200, 200]);
  });

  test.each(["webhook", "endpoint"])("spend each token of the bucket of a %s once", async (limited) => {
    const limit = 100;
    const ids = [await queue(db, 300), await queue(db, 300)] as [bigint, bigint];
    if (limited === "endpoint") await makeEndpoint(db, ids, limit);
    else await db("webhooks").where({ id: ids[0] }).update({ rate_limit: limit });
    const bucket = () => db(`${limited}s`).orderBy("id");
    await bucket().update({ rate_tokens: limit, rate_at: db.raw("now()") });
    const [before] = await bucket();
    const claimants = await freshClaimants(5);
    const excluded = limited === "webhook" ? [ids[1]] : [];
    let claimed = 0;
    await atOnce(5, async (n) => {
      // All of the bucket, or a part of it.
      const options = { after: 0n, limit: n === 0 ? 1_000 : 15, excluded };
      for (let nth = 0; nth < 15; nth += 1) {
        const { touched } = await claimPending(db, claimants[n] as Claimant, options);
        claimed += touched;
      }
    });
    const [after] = await bucket();
    const seconds = (after.rate_at.getTime() - before.rate_at.getTime()) / 1_000;
    expect(claimed).toBeGreaterThanOrEqual(limit);
    // What was there, and has come in by the last claim. Times have whole milliseconds.
    expect(claimed + after.rate_tokens).toBeLessThan(limit * (1.01 + seconds));
  });
});

test("of results that are the same, from several calls at once, one call records each", async () => {
  await queue(db, 60);
  const results = (await claim(db)).map((delivery, n) => result(delivery, n % 2 === 0 ? 503 : 200));
  const calls = await atOnce(3, () => recordAttempts(db, results, SPACING));
  expect(calls.map(({ size }) => size).sort((a, b) => b - a)).toEqual([60, 0, 0]);
  expect(await rows(db, "select from all_attempts")).toHaveLength(60);
});

test("late results and claims of another worker at the same time leave each attempt to one of them", async () => {
  await queue(db, 60);
  const claimed = await claim(db, await freshClaimant(db, -1));
  await endExpiredWorkers(db);
  const living = await freshClaimant(db);
  const recorded: string[] = [];
  const claimedAgain: string[] = [];
  await Promise.all([
    ...claimed.map(async (delivery) => recorded.push(...(await record(db, [delivery], 200)).keys())),
    (async () => {
      for (let n = 0; n < 30; n += 1) claimedAgain.push(...(await claim(db, living, 2)).map(({ id }) => id));
    })(),
  ]);
  expect([...recorded, ...claimedAgain].sort()).toEqual(claimed.map(({ id }) => id).sort());
  expect(await db("deliveries").pluck("id")).toHaveLength(recorded.length);
  expect(await db("queue").where({ claimed_by: living.workerId }).pluck("id")).toHaveLength(
    claimedAgain.length,
  );
});

describe("a claimed retry that leaves its run, as its webhook is paused, at the same time", () => {
  /** Claims a retry, and begins a statement on it that has to wait until the retry has left its run. */
  async function whileItLeaves<T>(begin: (retry: ClaimedDelivery) => Promise<T>): Promise<T> {
    const webhookId = await queue(db, 1);
    const claimant = await failFirst(db);
    const [retry] = await claimRetries(db, claimant);
    await db("webhooks").where({ id: webhookId }).update({ paused: new Date() });
    const leaving = await db.transaction();
    expect(await leavePaused(leaving, claimant.runId)).toBe(1);
    const begun = begin(retry as ClaimedDelivery);
    const waiting = "wait_event_type = 'Lock' and datname = current_database()";
    await expect.poll(() => db("pg_stat_activity").whereRaw(waiting).pluck("pid")).toHaveLength(1);
    await leaving.commit();
    return begun;
  }

  test("has its result recorded", async () => {
    const states = await whileItLeaves((retry) => record(db, [retry], 200));
    expect([...states.values()]).toEqual(["delivered"]);
    expect(await db("retries")).toEqual([]);
    expect(await db("deliveries").pluck("attempts")).toEqual([2]);
  });

  test("fails if it was claimed too often", async () => {
    await whileItLeaves(({ id, token }) => endInterrupted(db, "retries", token.workerId, [id]));
    expect(await db("deliveries").pluck("reason")).toEqual(["interrupted"]);
  });
});

describe("of several processes that find the same to do", () => {
  test("one ends an expired worker, and none if the worker is renewed meanwhile", async () => {
    for (let n = 0; n < 10; n += 1) {
      const id = await freshWorker(db, `worker ${n}`, -1);
      const [renewed, ...ended] = await Promise.all([
        renewWorker(db, id, 60_000),
        endExpiredWorkers(db),
        endExpiredWorkers(db),
      ]);
      expect(ended.flat()).toEqual(renewed ? [] : [`worker ${n}`]);
      await removeWorker(db, id);
    }
  });

  test("one closes each expired run", async () => {
    await atOnce(3, () => freshClaimant(db, -1));
    const { runId } = await freshClaimant(db);
    expect(sum(await atOnce(4, () => closeExpiredRuns(db)))).toBe(3);
    expect(await db("runs").whereNull("closed").pluck("id")).toEqual([runId]);
  });

  test("one adopts each retry", async () => {
    await queueMany(db, { urlPrefix: "https://example.com/", webhooks: 20, events: 5 });
    const { runId } = await failFirst(db);
    await closeRun(db, runId, true);
    const claimants = await freshClaimants(4);
    expect(sum(await atOnce(4, (n) => adoptRetries(db, claimants[n]?.runId as number)))).toBe(100);
    expect(await db("retries").whereNull("run_id").pluck("id")).toEqual([]);
  });

  test.each([
    ["was cancelled", (_: unknown, id: number) => closeRun(db, id, true)],
    ["is gone with its account", (_: unknown, id: number) => db("runs").where({ id }).delete()],
  ])("one adopts the retries of a run that %s, and no other waits for it", async (_what, end) => {
    await queue(db, 2);
    await end(db, (await failFirst(db)).runId);
    const [one, other] = (await freshClaimants(2)).map(({ runId }) => runId) as [number, number];
    await db.transaction(async (adopting) => {
      expect(await adoptRetries(adopting, one)).toBe(2);
      await db.transaction(async (trx) => {
        await trx.raw(`set local lock_timeout = ${PATIENCE_MS}`);
        expect(await adoptRetries(trx, other)).toBe(0);
      });
    });
  });

  test("one fails each delivery beyond a webhook's limit, and never more than is beyond it", async () => {
    await queue(db, 60);
    const oldest = await db("queue").orderBy("id").limit(20).pluck("id");
    const steps = await atOnce(6, () => endBeyond(db, 20, 10));
    while ((await endBeyond(db, 20, 10)) > 0);
    expect(Math.max(...steps)).toBe(10);
    expect(await db("queue").orderBy("id").pluck("id")).toEqual(oldest);
  });
});
