import { describe, expect, test } from "vitest";
import { claimGroup, claimPending } from "../../../src/db/queue/claims.ts";
import { recordAttempts } from "../../../src/db/queue/results.ts";
import { adoptRetries, assignGroups } from "../../../src/db/queue/retry-groups.ts";
import { abandonRun, closeExpiredRuns, closeRun, openRuns, renewLeases } from "../../../src/db/queue/runs.ts";
import { ALL, freshClaimant, NO_WAIT, openQueueDatabase, queue, result, SPACING, stored } from "./queue.ts";

const db = await openQueueDatabase();

describe("a run's lease", () => {
  test("gives what it has to retry back when it runs out, with the attempts as counted", async () => {
    await queue(db, 3);
    const claimant = await freshClaimant(db, -1);
    const { deliveries } = await claimPending(db, claimant, ALL);
    const [first, second, third] = deliveries.map((delivery) => result(delivery, 200)) as [
      ReturnType<typeof result>,
      ReturnType<typeof result>,
      ReturnType<typeof result>,
    ];
    await recordAttempts(db, [{ ...first, delivered: false, status: 500 }, second], SPACING);
    expect(await closeExpiredRuns(db)).toBe(1);
    const ids = deliveries.map(({ id }) => id);
    expect((await stored(db, ids)).map(({ state, attempts, run_id }) => [state, attempts, run_id])).toEqual([
      ["retrying", 1, null],
      ["delivered", 1, claimant.runId],
      // Its worker, whose lease is another one, still has it.
      ["delivering", 0, claimant.runId],
    ]);
    expect((await recordAttempts(db, [third], SPACING)).get(third.deliveryId)).toBe("delivered");
    expect(await closeExpiredRuns(db)).toBe(0);
  });

  test("ends once, however many processes find that it has run out", async () => {
    await Promise.all([1, 2, 3].map(() => freshClaimant(db, -1)));
    await freshClaimant(db);
    const ended = await Promise.all([1, 2, 3, 4].map(() => closeExpiredRuns(db)));
    expect(ended.reduce((sum, n) => sum + n, 0)).toBe(3);
    expect(await db("runs").whereNull("closed").pluck("id")).toHaveLength(1);
  });

  test("holds while it is renewed, is never shortened, and continue-as-new keeps the run", async () => {
    const wish = { workflowId: "w", firstRunId: "r", leaseMs: -1 };
    const [runId] = (await openRuns(db, [wish])) as [number];
    await renewLeases(db, [{ runId, leaseMs: 60_000 }]);
    expect(await openRuns(db, [wish])).toEqual([runId]);
    expect(await closeExpiredRuns(db)).toBe(0);
  });

  test("of several is opened and renewed at once, each for the longest that is asked", async () => {
    const wish = (workflowId: string, leaseMs: number) => ({ workflowId, firstRunId: "r", leaseMs });
    const opened = await openRuns(db, [wish("a", -1), wish("b", 60_000), wish("a", -2), wish("b", -1)]);
    const [a, b] = opened as [number, number];
    expect(a).not.toBe(b);
    expect(opened).toEqual([a, b, a, b]);
    await renewLeases(db, [
      { runId: a, leaseMs: 60_000 },
      { runId: a, leaseMs: -1 },
    ]);
    expect(await closeExpiredRuns(db)).toBe(0);
  });

  test("is closed with the run's account", async () => {
    const { runId } = await freshClaimant(db);
    const more = { sent: 2, delivered: 1, failed: 0 };
    await renewLeases(db, [{ runId, leaseMs: 1_000, more: { sent: 3, delivered: 2, failed: 1 } }]);
    await renewLeases(db, [
      { runId, leaseMs: 1_000, more },
      { runId, leaseMs: 1_000, more },
    ]);
    expect(await closeRun(db, runId)).toEqual({ sent: 7, delivered: 4, failed: 1, open: 0, putBack: 0 });
  });
});

describe("a run", () => {
  /** Two first attempts in vain; answers who made them. */
  async function failing() {
    await queue(db, 2);
    const claimant = await freshClaimant(db);
    const { deliveries } = await claimPending(db, claimant, ALL);
    await recordAttempts(
      db,
      deliveries.map((delivery) => result(delivery, 500)),
      NO_WAIT,
    );
    await assignGroups(db, claimant.runId);
    return claimant;
  }
  const isClosed = async (runId: number) => (await db("runs").where({ id: runId }).first()).closed !== null;

  test("is not closed while it has retries, and is once the last has come to an end", async () => {
    const claimant = await failing();
    expect(await closeRun(db, claimant.runId)).toMatchObject({ open: 2, putBack: 0 });
    expect(await isClosed(claimant.runId)).toBe(false);
    const { deliveries } = await claimGroup(db, claimant, { group: 1, limit: 10, excluded: [] });
    for (const [n, delivery] of deliveries.entries()) {
      await recordAttempts(db, [result(delivery, 200)], NO_WAIT);
      expect(await closeRun(db, claimant.runId)).toMatchObject({ open: 1 - n });
    }
    expect(await isClosed(claimant.runId)).toBe(true);
  });

  test("that was closed is closed when it is asked for again, whatever failed since", async () => {
    await queue(db, 1);
    const claimant = await freshClaimant(db);
    const { deliveries } = await claimPending(db, claimant, ALL);
    expect(await closeRun(db, claimant.runId)).toMatchObject({ open: 0 });
    await recordAttempts(
      db,
      deliveries.map((delivery) => result(delivery, 500)),
      NO_WAIT,
    );
    expect(await closeRun(db, claimant.runId)).toMatchObject({ open: 0 });
    const next = await freshClaimant(db);
    expect(await adoptRetries(db, next.runId)).toBe(1);
  });

  test("that is abandoned ends at once, and its retries keep their attempts and times", async () => {
    const claimant = await failing();
    const retries = () => db("retries").select("id", "attempts", "due", "run_id").orderBy("id");
    const before = await retries();
    expect(await abandonRun(db, claimant.runId)).toMatchObject({ open: 0, putBack: 2 });
    expect(await isClosed(claimant.runId)).toBe(true);
    expect(await retries()).toEqual(before.map((retry) => ({ ...retry, run_id: null })));
    expect(await abandonRun(db, claimant.runId)).toMatchObject({ open: 0, putBack: 0 });
  });
});
