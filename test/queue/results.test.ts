import { expect, test } from "vitest";
import { rows } from "../../src/lib/pg/database.ts";
import type { ClaimedDelivery } from "../../src/queue/claims.ts";
import { type AttemptResult, recordAttempts } from "../../src/queue/results.ts";
import { adoptRetries, assignGroups } from "../../src/queue/retry-groups.ts";
import { closeRun } from "../../src/queue/runs.ts";
import { observed } from "../delivery/engine-parts.ts";
import {
  claim,
  claimRetries,
  failFirst,
  freshClaimant,
  openQueueDatabase,
  queue,
  record,
  result,
  SPACING,
} from "./queue.ts";

const db = await openQueueDatabase();

test("an attempt is kept by one statement with all that is known of it, whether its delivery has ended or waits for a retry", async () => {
  await queue(db, 1);
  const claimant = await failFirst(db);
  const [delivery] = await claimRetries(db, claimant);
  const statements: string[] = [];
  await record(
    observed(db, (sql) => void statements.push(sql)),
    [delivery as never],
    200,
  );
  expect(statements).toHaveLength(1);
  const failed = {
    number: 1,
    status: 500,
    duration_ms: 5,
    error: null,
    response_start: "answer",
    signature: "v1,c2lnbmF0dXJl",
    response_headers: '["retry-after","1"]',
    timing: "1 2 3",
  };
  const columns = "status, duration_ms, error, response_start, signature, response_headers, timing";
  const kept = await rows(
    db,
    `select number, ${columns} from attempts union all select attempts, ${columns} from deliveries order by 1`,
  );
  expect(kept).toEqual([
    failed,
    { ...failed, number: 2, status: 200, signature: null, response_headers: null, timing: null },
  ]);
  expect(await db("deliveries").pluck("run_id")).toEqual([claimant.runId]);
});

test("retries are spaced by the settings, and longer where the receiver asked for it", async () => {
  await queue(db, 2);
  const claimant = await failFirst(db);
  const [plain, patient] = (await claimRetries(db, claimant)).map((delivery) => result(delivery, 503));
  // In a transaction, time stands still.
  const trx = await db.transaction();
  await recordAttempts(
    trx,
    [plain as never, { ...(patient as object), retryAfterMs: 600_000 } as never],
    SPACING,
  );
  const due = await rows(
    trx,
    "select extract(epoch from due - now())::int as seconds from retries order by due",
  );
  await trx.rollback();
  expect(due).toEqual([{ seconds: 300 }, { seconds: 600 }]);
});

test("a webhook's own delays take the place of the settings', retry by retry, up to a tenth longer, and a longer Retry-After counts", async () => {
  const own = { first_retry_seconds: 10, third_retry_seconds: 86_400 };
  const webhookId = await queue(db, 20);
  await db("webhooks").where({ id: webhookId }).update(own);
  const claimant = await freshClaimant(db);
  /** Fails all, and answers the delays in seconds. */
  const fail = async (deliveries: readonly ClaimedDelivery[]) => {
    const delays = await db.transaction(async (trx) => {
      const [patient, ...others] = deliveries.map((delivery) => result(delivery, 503)) as [AttemptResult];
      await recordAttempts(trx, [{ ...patient, retryAfterMs: 3_000_000 }, ...others], SPACING);
      return rows<{ seconds: number }>(
        trx,
        "select extract(epoch from due - now())::float8 as seconds from retries order by due",
      );
    });
    await db("retries").update({ due: new Date(), run_id: claimant.runId });
    await assignGroups(db, claimant.runId);
    await db("run_groups").update({ group_number: 1 });
    return delays.map(({ seconds }) => seconds);
  };
  const first = await fail(await claim(db, claimant));
  expect(first.at(-1)).toBe(3_000);
  expect(first[0]).toBeGreaterThanOrEqual(10);
  expect(first[18]).toBeLessThanOrEqual(11);
  expect(new Set(first).size).toBeGreaterThan(10);
  // Without one of its own, the settings': exact.
  expect(await fail(await claimRetries(db, claimant))).toEqual([...Array(19).fill(300), 3_000]);
  const third = await fail(await claimRetries(db, claimant));
  expect(third[0]).toBeGreaterThanOrEqual(86_400);
  expect(third[19]).toBeLessThanOrEqual(95_040);
  // Three retries, then failed.
  const states = await record(db, await claimRetries(db, claimant), 503, SPACING);
  expect(new Set(states.values())).toEqual(new Set(["failed"]));
});

test.each([
  [3_600, 60_000, true],
  [4_000, 60_000, false],
  [86_400, 600_000, false],
  [86_400, 3_600_000, true],
])("a retry after %i s, with runs every %i ms, stays in its run: %s", async (seconds, intervalMs, stays) => {
  await queue(db, 1);
  const spacing = { retryInitialDelayMs: 1_000 * seconds, retryBackoffCoefficient: 1, intervalMs };
  const claimant = await freshClaimant(db);
  await record(db, await claim(db, claimant), 503, spacing);
  expect(await db("retries").pluck("run_id")).toEqual([stays ? claimant.runId : null]);
  expect((await closeRun(db, claimant.runId)).open).toBe(stays ? 1 : 0);
  // The run before the retry is due adopts it.
  await db("retries").update({ due: db.raw("now() + make_interval(secs => ?)", [intervalMs / 1_000 - 1]) });
  const later = await freshClaimant(db);
  expect(await adoptRetries(db, later.runId, intervalMs)).toBe(stays ? 0 : 1);
});
