import { expect, test } from "vitest";
import { countOutcomes } from "../../src/replays/outcomes.ts";
import { getReplay, insertReplay } from "../../src/replays/replays.ts";
import { keepReplay, type RunningReplay } from "../../src/replays/running.ts";
import { stepWebhook } from "../../src/replays/steps.ts";
import { claim, openQueueDatabase, queueEvents, record } from "../queue/queue.ts";
import { aKey, aWebhook } from "../support/builders.ts";

const db = await openQueueDatabase();
const LIMITS = { retentionDays: 30, settledMs: -60_000 };

/** Starts a replay of a webhook, and makes its first step. */
async function replayed(kind: "resend" | "backfill", deliveries: number) {
  const { id: apiKeyId } = await aKey().in(db);
  const failed = { state: "failed" as const, attempts: 4, created: new Date(Date.now() - 60_000) };
  const webhookId = await aWebhook()
    .ownedBy(apiKeyId)
    .having(...Array(kind === "resend" ? deliveries : 0).fill(failed))
    .in(db);
  if (kind === "backfill") {
    await queueEvents(db, [webhookId], deliveries);
    await db("queue").delete();
  }
  const states = kind === "resend" ? (["failed"] as const) : [];
  const wanted = { apiKeyId, idempotencyKey: null, kind, filter: { webhookId, states } };
  const { id } = await insertReplay(db, "everything", wanted, 30, new Date(Date.now() + 60_000));
  const replay = (await keepReplay(db, id)) as RunningReplay;
  expect(await stepWebhook(db, replay, webhookId, LIMITS)).toMatchObject({ queued: deliveries });
  return async () => {
    await db("replay_steps")
      .whereNotNull("check_at")
      .update({ check_at: new Date(0) });
    await countOutcomes(db);
    const { queued, delivered, failed, open } = (await getReplay(db, "everything", id)) ?? {};
    return [queued, delivered, failed, open];
  };
}

test.each(["resend", "backfill"] as const)(
  "of what a replay queues (%s), it is counted what was delivered, what failed again and what waits",
  async (kind) => {
    const counts = await replayed(kind, 5);
    expect(await counts()).toEqual([5n, 0n, 0n, 5n]);
    const deliveries = await claim(db);
    await record(db, deliveries.slice(0, 2), 200);
    await record(db, deliveries.slice(2, 3), 500);
    expect(await counts()).toEqual([5n, 2n, 0n, 3n]);
    // What waits for a retry has not ended.
    await record(db, deliveries.slice(3), 200);
    expect(await counts()).toEqual([5n, 4n, 0n, 1n]);
    await db.raw(`with gone as (delete from retries returning id, event_id, webhook_id)
      insert into deliveries (id, event_id, webhook_id, outcome, attempts, round_start, finished)
      select id, event_id, webhook_id, 'failed', 4, 0, now() from gone`);
    expect(await counts()).toEqual([5n, 4n, 1n, 0n]);
    expect(await countOutcomes(db)).toBe(0);
    // Each is counted once, also if it is sent again later.
    await db("deliveries").update({ outcome: "delivered" });
    expect(await counts()).toEqual([5n, 4n, 1n, 0n]);
  },
);
