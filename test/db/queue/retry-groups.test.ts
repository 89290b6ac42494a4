import { describe, expect, test } from "vitest";
import {
  type Claimant,
  type ClaimedDelivery,
  claimGroup,
  claimPending,
} from "../../../src/db/queue/claims.ts";
import { type AttemptResult, recordAttempts } from "../../../src/db/queue/results.ts";
import {
  adoptRetries,
  assignGroups,
  groupStatuses,
  leavePaused,
  MAX_GROUPS,
} from "../../../src/db/queue/retry-groups.ts";
import { abandonRun } from "../../../src/db/queue/runs.ts";
import { endExpiredWorkers } from "../../../src/db/queue/workers.ts";
import { updateWebhook } from "../../../src/db/webhooks/webhook-update.ts";
import {
  ALL,
  databaseTime,
  freshClaimant,
  NO_WAIT,
  openQueueDatabase,
  queue,
  result,
  SPACING,
} from "./queue.ts";

const db = await openQueueDatabase();
const group = { group: 1, limit: 10, excluded: [] };

describe("a retry group", () => {
  test("gives a delivery out when it is due, and no earlier", async () => {
    await queue(db, 4);
    const claimant = await freshClaimant(db);
    const { deliveries } = await claimPending(db, claimant, ALL);
    const [now, later] = [deliveries.slice(0, 3), deliveries.slice(3)];
    const failed = (some: readonly ClaimedDelivery[]) => some.map((delivery) => result(delivery, 500));
    await recordAttempts(db, failed(now), NO_WAIT);
    const before = await databaseTime(db);
    await recordAttempts(db, failed(later), SPACING);
    expect(await assignGroups(db, claimant.runId)).toMatchObject([{ group: 1, deliveries: 4, delayMs: 0 }]);
    const statuses = () =>
      groupStatuses(
        db,
        [2, 1].map((number) => ({ runId: claimant.runId, group: number })),
      );
    expect(await statuses()).toEqual([
      { open: 0, delayMs: 0, hasPaused: false },
      { open: 4, delayMs: 0, hasPaused: false },
    ]);
    const claimed = await claimGroup(db, claimant, group);
    expect(claimed.deliveries.map(({ id }) => id)).toEqual(now.map(({ id }) => id));
    expect(await claimGroup(db, claimant, group)).toMatchObject({ touched: 0, limited: false });
    await recordAttempts(
      db,
      claimed.deliveries.map((delivery) => result(delivery, 200)),
      SPACING,
    );
    const [, status] = await statuses();
    expect(status?.open).toBe(1);
    // A minute from when the result was recorded, which others' may not cut short.
    expect(status?.delayMs).toBeGreaterThanOrEqual(59_999 - ((await databaseTime(db)) - before));
    expect(status?.delayMs).toBeLessThanOrEqual(60_000);
    expect(await assignGroups(db, claimant.runId)).toMatchObject([{ group: 1, deliveries: 1 }]);
  });

  test("gives all of its webhooks turns when a claim is smaller than their number", async () => {
    const [webhooks, claims] = [6, 50];
    for (let n = 0; n < webhooks; n += 1) await queue(db, claims);
    const { runId, workerId } = await failing(webhooks * claims);
    await db.raw("update run_groups set group_number = 1");
    await db.raw("update retries set due = now()");
    const served = new Set<bigint>();
    for (let n = 0; n < claims; n += 1) {
      const claimed = await claimGroup(db, { runId, workerId }, { ...group, limit: 2 });
      for (const { webhook } of claimed.deliveries) served.add(webhook.id);
    }
    // Two of them have enough for all claims. The others are left out with a probability of 10^-8.
    expect(served.size).toBe(webhooks);
  });

  test("leaves a delivery alone for as long as its Retry-After asks, and no other one", async () => {
    await queue(db, 2);
    const claimant = await freshClaimant(db);
    const { deliveries } = await claimPending(db, claimant, ALL);
    const [asked, other] = deliveries.map((delivery) => result(delivery, 503)) as [
      AttemptResult,
      AttemptResult,
    ];
    await recordAttempts(db, [{ ...asked, retryAfterMs: 3_600_000 }, other], NO_WAIT);
    await assignGroups(db, claimant.runId);
    const claimed = await claimGroup(db, claimant, group);
    expect(claimed.deliveries.map(({ id }) => id)).toEqual([other.deliveryId]);
    await recordAttempts(db, [result(claimed.deliveries[0] as ClaimedDelivery, 200)], NO_WAIT);
    const [status] = await groupStatuses(db, [{ runId: claimant.runId, group: 1 }]);
    expect(status?.open).toBe(1);
    expect(status?.delayMs).toBeGreaterThan(3_500_000);
  });

  test("is claimed from fairly between its webhooks, and not at all from those that are left out", async () => {
    const [large, small, full] = [await queue(db, 40), await queue(db, 2), await queue(db, 40)];
    const { runId, workerId } = await failing(82);
    await db.raw("update run_groups set group_number = 1");
    await db.raw("update retries set due = now()");
    const claimed = await claimGroup(db, { runId, workerId }, { ...group, excluded: [full] });
    const byWebhook = Map.groupBy(claimed.deliveries, ({ webhook }) => webhook.id);
    expect([...byWebhook].map(([id, some]) => [id, some.length])).toEqual([
      [large, 5],
      [small, 2],
    ]);
  });

  test("is shared by the passes over it: none has what another has, and a dead one's is due when its lease ends", async () => {
    await queue(db, 6);
    const first = await failing(6, -1);
    await db("workers")
      .where({ id: first.workerId })
      .update({ lease_until: await inAnHour() });
    const second = { ...(await freshClaimant(db)), runId: first.runId };
    const claim = async (claimant: Claimant, limit: number) =>
      (await claimGroup(db, claimant, { ...group, limit })).deliveries.length;
    await db.raw("update retries set due = now()");
    expect(await claim(first, 4)).toBe(4);
    expect(await claim(second, 10)).toBe(2);
    expect(await claim(first, 10)).toBe(0);
    const [held] = await groupStatuses(db, [{ runId: first.runId, group: 1 }]);
    // All are due, and held: by one worker whose lease ends in an hour, and by one whose lease ends in a minute.
    expect(held?.open).toBe(6);
    expect(held?.delayMs).toBeGreaterThan(0);
    expect(held?.delayMs).toBeLessThanOrEqual(60_000);
    await db("retries").where({ claimed_by: second.workerId }).delete();
    const [left] = await groupStatuses(db, [{ runId: first.runId, group: 1 }]);
    expect(left?.open).toBe(4);
    expect(left?.delayMs).toBeGreaterThan(3_500_000);
    await db("workers")
      .where({ id: first.workerId })
      .update({ lease_until: new Date(0) });
    await endExpiredWorkers(db);
    expect(await claim(second, 10)).toBe(4);
  });

  test("belongs to one failing webhook; of more than 200 those with few deliveries share, by address", async () => {
    const many = MAX_GROUPS + 60;
    for (let n = 0; n < many; n += 1) await queue(db, n < 10 ? 3 : 1);
    const claimant = await freshClaimant(db);
    await tryEverything(claimant);
    await db.raw("update retries set due = now()");
    const failing = await assignGroups(db, claimant.runId);
    expect(failing).toHaveLength(many);
    const groups = Map.groupBy(failing, ({ group }) => group);
    const [own, shared] = [[...groups.values()].filter(isOne), [...groups.values()].filter((g) => !isOne(g))];
    expect(own.flat().map(({ deliveries }) => deliveries)).toEqual(Array(10).fill(3));
    // 250 in 50 groups.
    expect(shared.map(({ length }) => length)).toEqual(Array(50).fill(5));
    // Each has what follows the last of the one before, by address.
    const addresses = shared.flatMap((group) => group.map(({ targetUrl }) => targetUrl).sort());
    expect(addresses).toEqual(addresses.toSorted());
    expect(await assignGroups(db, claimant.runId)).toEqual(failing);
  });

  test("stays within 200 numbers when more webhooks fail later", async () => {
    const claimant = await freshClaimant(db);
    for (let n = 0; n < MAX_GROUPS - 10; n += 1) await queue(db, 1);
    await tryEverything(claimant);
    const first = await assignGroups(db, claimant.runId);
    expect(new Set(first.map(({ group }) => group)).size).toBe(MAX_GROUPS - 10);
    for (let n = 0; n < 100; n += 1) await queue(db, n === 0 ? 50 : 1);
    await tryEverything(claimant);
    const all = await assignGroups(db, claimant.runId);
    expect(all).toHaveLength(MAX_GROUPS + 90);
    const numbers = all.map(({ group }) => group);
    expect(Math.min(...numbers)).toBeGreaterThanOrEqual(1);
    expect(Math.max(...numbers)).toBeLessThanOrEqual(MAX_GROUPS);
    const groupOf = new Map(all.map(({ webhookId, group }) => [webhookId, group]));
    for (const { webhookId, group } of first) expect(groupOf.get(webhookId)).toBe(group);
  });
});

describe("a run", () => {
  test("adopts the retries of runs that have closed, those that are due within a minute", async () => {
    await queue(db, 3);
    const closed = await failing(3);
    await db.raw(
      "update retries set due = now() + interval '1 hour' where id = (select id from retries limit 1)",
    );
    const { runId } = await freshClaimant(db);
    expect(await adoptRetries(db, runId)).toBe(0);
    await db.raw("update runs set closed = now() where id = ?", [closed.runId]);
    expect(await adoptRetries(db, runId)).toBe(2);
    expect(await adoptRetries(db, runId)).toBe(0);
    expect(await db("retries").where({ run_id: runId }).pluck("id")).toHaveLength(2);
  });

  test("that is abandoned leaves its retries to the next, those too that it is given afterwards", async () => {
    await queue(db, 2);
    const claimant = await freshClaimant(db);
    const { deliveries } = await claimPending(db, claimant, ALL);
    const [first, second] = deliveries.map((delivery) => [result(delivery, 500)]);
    await recordAttempts(db, first as never, NO_WAIT);
    expect(await abandonRun(db, claimant.runId)).toMatchObject({ open: 0, putBack: 1 });
    await recordAttempts(db, second as never, NO_WAIT);
    const next = await freshClaimant(db);
    expect(await adoptRetries(db, next.runId)).toBe(2);
    expect(await assignGroups(db, next.runId)).toHaveLength(1);
    expect(await adoptRetries(db, (await freshClaimant(db)).runId)).toBe(0);
  });

  test("adopts the retries of runs whose accounts are deleted by now, too", async () => {
    await queue(db, 2);
    const { runId } = await failing(2);
    await db("runs").where({ id: runId }).delete();
    expect(await adoptRetries(db, (await freshClaimant(db)).runId)).toBe(2);
  });

  test("leaves out the retries of a paused webhook, and has them again once it is paused no more", async () => {
    const paused = await queue(db, 2);
    await queue(db, 1);
    const { runId } = await failing(3);
    await db.raw("update retries set due = now()");
    await updateWebhook(db, "everything", paused, { paused: true });
    expect(await leavePaused(db, runId)).toBe(2);
    expect(await adoptRetries(db, runId)).toBe(0);
    expect(await assignGroups(db, runId)).toMatchObject([{ deliveries: 1 }]);
    await updateWebhook(db, "everything", paused, { paused: false });
    expect(await adoptRetries(db, runId)).toBe(2);
    expect(await assignGroups(db, runId)).toHaveLength(2);
  });

  test("shares what waits with the others that adopt at the same time", async () => {
    for (let n = 0; n < 20; n += 1) await queue(db, 10);
    const { runId } = await failing(200);
    await abandonRun(db, runId);
    await db.raw("update retries set due = now()");
    const claimants = await Promise.all([1, 2, 3, 4].map(() => freshClaimant(db)));
    const adopted = await Promise.all(claimants.map((claimant) => adoptRetries(db, claimant.runId)));
    expect(adopted.reduce((sum, n) => sum + n, 0)).toBe(200);
    expect(await db("retries").whereNull("run_id").pluck("id")).toEqual([]);
  });
});

const isOne = (group: readonly unknown[]) => group.length === 1;

const inAnHour = async () => new Date((await databaseTime(db)) + 3_600_000);

/** Makes the first attempt of what is pending, in vain; answers who did. */
async function failing(deliveries: number, leaseMs?: number): Promise<Claimant> {
  const claimant = await freshClaimant(db, leaseMs);
  expect(await tryEverything(claimant)).toBe(deliveries);
  await assignGroups(db, claimant.runId);
  return claimant;
}

async function tryEverything(claimant: Claimant): Promise<number> {
  let tried = 0;
  for (let after: bigint | null = 0n; after !== null; ) {
    const claimed = await claimPending(db, claimant, { ...ALL, after });
    const results = claimed.deliveries.map((delivery) => result(delivery, 500));
    tried += (await recordAttempts(db, results, SPACING)).size;
    after = claimed.next;
  }
  return tried;
}
