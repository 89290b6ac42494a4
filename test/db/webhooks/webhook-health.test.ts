import { expect, test } from "vitest";
import { rows } from "../../../src/db/database.ts";
import { CHANGE } from "../../../src/db/deliveries/rollup-deltas.ts";
import { foldDeltas } from "../../../src/db/deliveries/rollups.ts";
import { claimPending } from "../../../src/db/queue/claims.ts";
import { recordAttempts } from "../../../src/db/queue/results.ts";
import { forgetHealthy, type HealthChange } from "../../../src/db/webhooks/webhook-health.ts";
import { deleteWebhook } from "../../../src/db/webhooks/webhooks.ts";
import { ALL, freshClaimant, openQueueDatabase, queue, result, SPACING } from "../queue/queue.ts";

const db = await openQueueDatabase();

/** Records attempts that failed, by one statement, and folds them; answers the webhooks whose health changed. */
async function attempts(
  webhookId: bigint,
  outcomes: { succeeded?: number; failed?: number },
): Promise<HealthChange[]> {
  const { succeeded = 0, failed = 0 } = outcomes;
  const changes = [
    ...Array<number>(succeeded).fill(CHANGE.delivered),
    ...Array<number>(failed).fill(CHANGE.retrying),
  ];
  await db.raw(
    `insert into rollup_deltas (minute, webhook_ids, changes, durations_ms)
      select date_trunc('minute', now()), ?::bigint[], ?::smallint[], ?::int[]`,
    [changes.map(() => String(webhookId)), changes, changes.map(() => 5)],
  );
  return folded();
}

async function folded(): Promise<HealthChange[]> {
  const all: HealthChange[] = [];
  await foldDeltas(db, (changes) => all.push(...changes));
  return all;
}

/** Makes what has happened so far so much older. */
async function letPass(seconds: number): Promise<void> {
  const minutes = Math.floor(seconds / 60);
  await db.raw(
    `update webhook_health set since = since - make_interval(secs => :seconds),
      first_failure = first_failure - make_interval(secs => :seconds),
      last_failure = last_failure - make_interval(secs => :seconds),
      last_success = last_success - make_interval(secs => :seconds),
      error_read = error_read - make_interval(secs => :seconds)`,
    { seconds },
  );
  await db.raw("update rollup_minutes set start = start - make_interval(mins => :minutes)", { minutes });
}

async function healthOf(webhookId: bigint): Promise<string> {
  const [row] = await rows<{ health: string }>(
    db,
    "select health from webhook_health where webhook_id = :webhookId::bigint",
    { webhookId },
  );
  return row?.health ?? "healthy";
}

test("a webhook whose attempts succeed costs no row", async () => {
  const webhookId = await queue(db, 0);
  expect(await attempts(webhookId, { succeeded: 20 })).toEqual([]);
  expect(await rows(db, "select from webhook_health")).toEqual([]);
});

test("a webhook is failing from its first failed attempt when none has succeeded, though all will be retried", async () => {
  const webhookId = await queue(db, 0);
  expect(await attempts(webhookId, { failed: 1 })).toEqual([
    {
      webhookId,
      targetUrl: expect.stringContaining("https://example.com/"),
      was: "healthy",
      health: "failing",
      since: expect.any(Date),
      wasSince: expect.any(Date),
    },
  ]);
  expect(await attempts(webhookId, { failed: 5 })).toEqual([]);
});

test("a webhook that answered well until now is degraded at first, and failing after 30 seconds without a success", async () => {
  const webhookId = await queue(db, 0);
  await attempts(webhookId, { succeeded: 5 });
  expect(await attempts(webhookId, { failed: 5 })).toMatchObject([{ was: "healthy", health: "degraded" }]);
  await letPass(29);
  expect(await attempts(webhookId, { failed: 1 })).toEqual([]);
  await letPass(2);
  const [change] = await attempts(webhookId, { failed: 1 });
  expect(change).toMatchObject({ was: "degraded", health: "failing" });
  expect(Date.now() - (change?.since.getTime() ?? 0)).toBeGreaterThan(30_000);
});

test("a webhook with a success between its failures is degraded while a tenth of its attempts fail", async () => {
  const webhookId = await queue(db, 0);
  await attempts(webhookId, { succeeded: 91 });
  expect(await attempts(webhookId, { failed: 9, succeeded: 1 })).toEqual([]);
  expect(await attempts(webhookId, { failed: 10, succeeded: 1 })).toMatchObject([{ health: "degraded" }]);
  expect(await attempts(webhookId, { succeeded: 100 })).toMatchObject([{ health: "healthy" }]);
});

test("a failing webhook has recovered with its first success, and stays failing without attempts while retries wait", async () => {
  const webhookId = await queue(db, 1);
  const claimant = await freshClaimant(db);
  const { deliveries } = await claimPending(db, claimant, ALL);
  await recordAttempts(
    db,
    deliveries.map((each) => ({ ...result(each, 0), status: null, delivered: false, error: "no answer" })),
    SPACING,
  );
  expect(await folded()).toMatchObject([{ webhookId, health: "failing" }]);
  await letPass(3_700);
  await forgetHealthy(db);
  expect(await healthOf(webhookId)).toBe("failing");
  expect(await attempts(webhookId, { succeeded: 1 })).toMatchObject([{ was: "failing", health: "healthy" }]);
  expect(await forgetHealthy(db)).toBe(1);
  expect(await rows(db, "select from webhook_health")).toEqual([]);
});

test("a failing webhook without retries is healthy again when nothing was tried for an hour", async () => {
  const webhookId = await queue(db, 0);
  await attempts(webhookId, { failed: 1 });
  await letPass(3_500);
  expect(await forgetHealthy(db)).toBe(0);
  await letPass(200);
  expect(await forgetHealthy(db)).toBe(1);
  expect(await healthOf(webhookId)).toBe("healthy");
});

test("the last error is that of the latest attempt, whether its delivery waits for a retry or failed for good", async () => {
  const webhookId = await queue(db, 3);
  const claimant = await freshClaimant(db);
  const { deliveries } = await claimPending(db, claimant, ALL);
  const secondsAgo = [20, 1, 30];
  const answers = deliveries.map((delivery, n) => ({
    ...result(delivery, 500 + n),
    started: new Date(Date.now() - 1_000 * (secondsAgo[n] as number)),
  }));
  await recordAttempts(db, answers, SPACING);
  await folded();
  const [row] = await rows(
    db,
    "select last_error from webhook_health where webhook_id = :webhookId::bigint",
    {
      webhookId,
    },
  );
  expect(row).toEqual({ last_error: "HTTP status 501" });
});

test("a deleted webhook is forgotten, and what was under way makes no change", async () => {
  const webhookId = await queue(db, 0);
  await attempts(webhookId, { failed: 1 });
  await deleteWebhook(db, webhookId);
  expect(await attempts(webhookId, { failed: 1 })).toEqual([]);
  expect(await forgetHealthy(db)).toBe(1);
});

test("changes that are folded late, from a time that is over, change no health", async () => {
  const webhookId = await queue(db, 0);
  await db.raw(
    `insert into rollup_deltas (minute, webhook_ids, changes, durations_ms)
      values (date_trunc('minute', now()) - interval '1 hour', array[?]::bigint[], '{0}', '{5}')`,
    [String(webhookId)],
  );
  expect(await folded()).toEqual([]);
  expect(await rows(db, "select from webhook_health")).toEqual([]);
});
