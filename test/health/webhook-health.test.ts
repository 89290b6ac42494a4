import { expect, test } from "vitest";
import { WebhookHealth } from "../../gen/webhook/v1/webhook_pb.ts";
import { forgetHealthy, type HealthChange } from "../../src/health/webhook-health.ts";
import { foldDeltas } from "../../src/maintenance/fold.ts";
import { cancelFirst } from "../../src/queue/deleted-webhooks.ts";
import { recordAttempts } from "../../src/queue/results.ts";
import { CHANGE } from "../../src/queue/rollup-deltas.ts";
import { webhookMessage } from "../../src/webhooks/rpc/webhook-message.ts";
import { deleteWebhook } from "../../src/webhooks/webhook-deletion.ts";
import { requiredWebhook } from "../../src/webhooks/webhooks.ts";
import { claim, openQueueDatabase, queue, record, result, SPACING } from "../queue/queue.ts";

const db = await openQueueDatabase();

/** Counts attempts in a minute, by one delta, and folds it; answers the webhooks whose health changed. */
async function attempts(
  webhookId: bigint,
  { succeeded = 0, failed = 0, minutesAgo = 0 },
): Promise<HealthChange[]> {
  const changes = [...Array(succeeded).fill(CHANGE.delivered), ...Array(failed).fill(CHANGE.retrying)];
  const minute = db.raw("date_trunc('minute', now()) - make_interval(mins => ?)", [minutesAgo]);
  const [webhookIds, durations] = [String(webhookId), 5].map((each) => changes.map(() => each));
  await db("rollup_deltas").insert({ minute, webhook_ids: webhookIds, changes, durations_ms: durations });
  return folded();
}

async function folded(): Promise<HealthChange[]> {
  const all: HealthChange[] = [];
  await foldDeltas(db, (changes) => all.push(...changes));
  return all;
}

/** Makes what has happened so far so much older. */
async function letPass(seconds: number): Promise<void> {
  const columns = ["since", "first_failure", "last_failure", "last_success", "error_read"];
  const earlier = columns.map((column) => `${column} = ${column} - make_interval(secs => :seconds)`);
  await db.raw(`update webhook_health set ${earlier.join(", ")}`, { seconds });
  const minutes = Math.floor(seconds / 60);
  await db.raw("update rollup_minutes set start = start - make_interval(mins => :minutes)", { minutes });
}

const healths = () => db("webhook_health").pluck("health");

test("a webhook is never tried until its first attempt, successful or not, and is healthy meanwhile", async () => {
  const shown = async (id: bigint) => {
    const webhook = await requiredWebhook(db, "everything", id);
    const { neverTried, health } = webhookMessage(webhook, "everything");
    return [neverTried, health];
  };
  for (const [outcome, health] of [
    ["succeeded", WebhookHealth.HEALTHY],
    ["failed", WebhookHealth.FAILING],
  ] as const) {
    const id = await queue(db, 1);
    expect(await shown(id)).toEqual([true, WebhookHealth.HEALTHY]);
    await attempts(id, { [outcome]: 1 });
    expect(await shown(id)).toEqual([false, health]);
  }
});

test("a webhook whose attempts succeed costs no row", async () => {
  expect(await attempts(await queue(db, 0), { succeeded: 20 })).toEqual([]);
  expect(await healths()).toEqual([]);
});

test("a webhook is failing from its first failed attempt when none has succeeded, though all will be retried", async () => {
  const webhookId = await queue(db, 0);
  const targetUrl = expect.stringContaining("https://example.com/");
  const change = { webhookId, targetUrl, was: "healthy", health: "failing" };
  expect(await attempts(webhookId, { failed: 1 })).toMatchObject([change]);
  expect(await attempts(webhookId, { failed: 5 })).toEqual([]);
});

test("a webhook that answered well until now is degraded at first, and failing after 30 seconds without a success", async () => {
  const webhookId = await queue(db, 0);
  await attempts(webhookId, { succeeded: 5 });
  expect(await attempts(webhookId, { failed: 5 })).toMatchObject([{ was: "healthy", health: "degraded" }]);
  await letPass(15);
  expect(await attempts(webhookId, { failed: 1 })).toEqual([]);
  await letPass(15);
  const [change] = await attempts(webhookId, { failed: 1 });
  const [row] = await db("webhook_health");
  expect(change).toMatchObject({ was: "degraded", health: "failing", since: row.first_failure });
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
  await record(db, await claim(db), 500);
  expect(await folded()).toMatchObject([{ webhookId, health: "failing" }]);
  await letPass(3_700);
  await forgetHealthy(db);
  expect(await healths()).toEqual(["failing"]);
  expect(await attempts(webhookId, { succeeded: 1 })).toMatchObject([{ was: "failing", health: "healthy" }]);
  expect(await forgetHealthy(db)).toBe(1);
  expect(await healths()).toEqual([]);
});

test("a failing webhook without retries is healthy again when nothing was tried for an hour", async () => {
  await attempts(await queue(db, 0), { failed: 1 });
  await letPass(3_000);
  expect(await forgetHealthy(db)).toBe(0);
  await letPass(600);
  expect(await forgetHealthy(db)).toBe(1);
  expect(await healths()).toEqual([]);
});

test("the last error is that of the latest attempt, whether its delivery waits for a retry or failed for good", async () => {
  await queue(db, 3);
  const answers = (await claim(db)).map((delivery, n) => ({
    ...result(delivery, 500 + n),
    started: new Date(Date.now() - 1_000 * ([20, 1, 30][n] as number)),
  }));
  await recordAttempts(db, answers, SPACING);
  await folded();
  expect(await db("webhook_health").pluck("last_error")).toEqual(["HTTP status 501"]);
});

test("attempts of an hour ago that are folded late, and attempts of a deleted webhook, change no health", async () => {
  const webhookId = await queue(db, 0);
  expect(await attempts(webhookId, { failed: 1, minutesAgo: 60 })).toEqual([]);
  expect(await healths()).toEqual([]);
  await attempts(webhookId, { failed: 1 });
  await deleteWebhook(db, webhookId, cancelFirst);
  expect(await attempts(webhookId, { failed: 1 })).toEqual([]);
  expect(await forgetHealthy(db)).toBe(1);
});
