import { expect, test } from "vitest";
import { rows } from "../../src/lib/pg/database.ts";
import { recordAttempts } from "../../src/queue/results.ts";
import { observed } from "../delivery/engine-parts.ts";
import { claimRetries, failFirst, openQueueDatabase, queue, record, result, SPACING } from "./queue.ts";

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
  };
  const columns = "status, duration_ms, error, response_start, signature, response_headers";
  const kept = await rows(
    db,
    `select number, ${columns} from attempts union all select attempts, ${columns} from deliveries order by 1`,
  );
  expect(kept).toEqual([
    failed,
    { ...failed, number: 2, status: 200, signature: null, response_headers: null },
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
