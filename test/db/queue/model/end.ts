import { expect } from "vitest";
import { rows } from "../../../../src/db/database.ts";
import { fanOutStep } from "../../../../src/db/events/fan-out.ts";
import { type ClaimResult, claimGroup, claimPending } from "../../../../src/db/queue/claims.ts";
import { recordAttempts } from "../../../../src/db/queue/results.ts";
import { adoptRetries, assignGroups } from "../../../../src/db/queue/retry-groups.ts";
import { endExpiredWorkers } from "../../../../src/db/queue/workers.ts";
import { updateWebhook } from "../../../../src/db/webhooks/webhook-update.ts";
import { cancelOfDeleted } from "../../../../src/db/webhooks/webhooks.ts";
import { ALL, freshWorker, NO_WAIT, result } from "../queue.ts";
import { expectAttempts, expectStatistics } from "./invariants.ts";
import type { StorageModel } from "./model.ts";

/** More rounds than any history needs: each leaves fewer open deliveries. */
const MAX_ROUNDS = 20;

/**
 * Ends a history: all workers die, webhooks are resumed, and another worker delivers everything. Nothing may stay open, and
 * the statistics and attempts must be right.
 */
export async function endHistory(model: StorageModel): Promise<void> {
  const { db, runId } = model;
  model.log.push("another worker delivers everything");
  await db.raw("update workers set lease_until = now() - interval '1 second'");
  await endExpiredWorkers(db);
  for (const worker of model.workers) worker.state = "dead";
  const workerId = await freshWorker(db, "last", 600_000);
  const claimant = { workerId, runId };
  for (const webhook of model.liveWebhooks) {
    webhook.paused = false;
    await updateWebhook(db, "everything", webhook.id, { paused: false, breaker: null });
  }
  await db.raw("update retries set due = now()");
  const deliver = async ({ deliveries }: ClaimResult) => {
    const results = deliveries.map((delivery) => result(delivery, 200));
    if (results.length > 0) expect((await recordAttempts(db, results, NO_WAIT)).size).toBe(results.length);
  };
  for (let round = 0; round < MAX_ROUNDS && (await isOpen(model)); round += 1) {
    while (await fanOutStep(db));
    while ((await cancelOfDeleted(db)) > 0);
    await deliver(await claimPending(db, claimant, ALL));
    await adoptRetries(db, runId);
    for (const { group } of await assignGroups(db, runId))
      await deliver(await claimGroup(db, claimant, { group, limit: 1_000, excluded: [] }));
  }
  await model.check({
    may: (before, after) => before?.table !== "deliveries" && after?.table === "deliveries",
  });
  expect(await isOpen(model), "deliveries stay open").toBe(false);
  await expectStatistics(model.db);
  await expectAttempts(model);
}

async function isOpen({ db }: StorageModel): Promise<boolean> {
  const [found] = await rows<{ open: boolean }>(
    db,
    "select exists (select from queue) or exists (select from retries) or exists (select from fan_out) as open",
  );
  return found?.open === true;
}
