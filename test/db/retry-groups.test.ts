import { describe, expect, test } from "vitest";
import { type Claimant, claimGroup, claimPending } from "../../src/db/queue/claims.ts";
import { handOver, releaseToRun } from "../../src/db/queue/release.ts";
import { recordAttempts } from "../../src/db/queue/results.ts";
import {
  adoptRetries,
  assignGroups,
  groupStatuses,
  leavePaused,
  MAX_GROUPS,
} from "../../src/db/queue/retry-groups.ts";
import { closeRun } from "../../src/db/queue/runs.ts";
import { endExpiredWorkers } from "../../src/db/queue/workers.ts";
import { setPaused } from "../../src/db/webhooks.ts";
import { ALL, databaseTime, freshClaimant, openQueueDatabase, queue, result, SPACING } from "./queue.ts";

const db = await openQueueDatabase();
const group = { group: 1, limit: 10, excluded: [] };

describe("a retry group", () => {
  test("brings stragglers level before it tries anyone again", async () => {
    const webhookId = await queue(db, 4);
    const claimant = await freshClaimant(db);
    const { deliveries } = await claimPending(db, claimant, ALL);
    await recordAttempts(
      db,
      deliveries.slice(0, 3).map((delivery) => result(delivery, 500)),
      SPACING,
    );
    // Claimed and not sent: it goes to the run untried.
    const straggler = deliveries[3]?.id;
    await releaseToRun(db, claimant, [straggler as string]);
    await assignGroups(db, claimant.runId);
    expect(await groupStatuses(db, [{ runId: claimant.runId, group: 1 }])).toEqual([
      { open: 4, level: 0, delayMs: 0 },
    ]);
    const stragglers = await claimGroup(db, claimant, { ...group, level: 0 });
    expect(stragglers.deliveries.map(({ id }) => id)).toEqual([straggler]);
    const before = await databaseTime(db);
    await recordAttempts(
      db,
      stragglers.deliveries.map((delivery) => result(delivery, 500)),
      SPACING,
    );
    const [none, status] = await groupStatuses(
      db,
      [2, 1].map((group) => ({ runId: claimant.runId, group })),
    );
    expect(none).toEqual({ open: 0, level: 0, delayMs: 0 });
    expect(status).toMatchObject({ open: 4, level: 1 });
    // A minute from when the straggler's result was recorded, which others' may not cut short.
    expect(status?.delayMs).toBeGreaterThanOrEqual(59_999 - ((await databaseTime(db)) - before));
    expect(status?.delayMs).toBeLessThanOrEqual(60_000);
    expect(await assignGroups(db, claimant.runId)).toMatchObject([{ webhookId, group: 1, deliveries: 4 }]);
  });

  test("is shared by the passes over it: none has what another has, and a dead one's is due when its lease ends", async () => {
    await queue(db, 6);
    const first = await failing(6, -1);
    await db("workers")
      .where({ id: first.workerId })
      .update({ lease_until: await inAnHour() });
    const second = { ...(await freshClaimant(db)), runId: first.runId };
    const claim = async (claimant: Claimant, limit: number) =>
      (await claimGroup(db, claimant, { ...group, level: 1, limit })).deliveries.length;
    expect(await claim(first, 4)).toBe(4);
    expect(await claim(second, 10)).toBe(2);
    expect(await claim(first, 10)).toBe(0);
    const [held] = await groupStatuses(db, [{ runId: first.runId, group: 1 }]);
    expect(held).toMatchObject({ open: 6, level: 1 });
    // The last retry is due in a minute, the lease of the worker that has some ends in an hour.
    expect(held?.delayMs).toBeGreaterThan(3_500_000);
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

  test("that is closed leaves its retries to the next, those too that it is given afterwards", async () => {
    await queue(db, 2);
    const claimant = await freshClaimant(db);
    const { deliveries } = await claimPending(db, claimant, ALL);
    const [first, second] = deliveries.map((delivery) => [result(delivery, 500)]);
    await recordAttempts(db, first as never, SPACING);
    expect(await closeRun(db, claimant.runId)).toMatchObject({ putBack: 1 });
    await recordAttempts(db, second as never, SPACING);
    const waiting = await queue(db, 1);
    await handOver(db, claimant.runId, [waiting], 10);
    await db.raw("update retries set due = now()");
    const next = await freshClaimant(db);
    expect(await adoptRetries(db, next.runId)).toBe(3);
    expect(await assignGroups(db, next.runId)).toHaveLength(2);
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
    await setPaused(db, "everything", paused, true);
    expect(await leavePaused(db, runId)).toBe(2);
    expect(await adoptRetries(db, runId)).toBe(0);
    expect(await assignGroups(db, runId)).toMatchObject([{ deliveries: 1 }]);
    await setPaused(db, "everything", paused, false);
    expect(await adoptRetries(db, runId)).toBe(2);
    expect(await assignGroups(db, runId)).toHaveLength(2);
  });

  test("shares what waits with the others that adopt at the same time", async () => {
    for (let n = 0; n < 20; n += 1) await queue(db, 10);
    const { runId } = await failing(200);
    await closeRun(db, runId);
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
