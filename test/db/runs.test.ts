import { describe, expect, test } from "vitest";
import { claimPending } from "../../src/db/delivery-claims.ts";
import { recordAttempts } from "../../src/db/delivery-results.ts";
import { closeExpiredRuns, closeRun, openRuns, renewLeases } from "../../src/db/runs.ts";
import { ALL, freshToken, openQueueDatabase, queue, result, SPACING, stored } from "./queue.ts";

const db = await openQueueDatabase();

describe("a run's lease", () => {
  test("gives everything open back when it runs out, with the attempts as counted", async () => {
    await queue(db, 3);
    const token = await freshToken(db, -1);
    const { deliveries } = await claimPending(db, token, ALL);
    const [first, second, third] = deliveries.map(({ id }) => id) as [string, string, string];
    await recordAttempts(db, [result(first, token, 500), result(second, token, 200)], SPACING);
    expect(await closeExpiredRuns(db)).toBe(1);
    expect(
      (await stored(db, [first, second, third])).map(({ state, attempts }) => [state, attempts]),
    ).toEqual([
      ["pending", 1],
      ["delivered", 1],
      ["pending", 0],
    ]);
    expect((await recordAttempts(db, [result(third, token, 200)], SPACING)).size).toBe(0);
  });

  test("holds while it is renewed, is never shortened, and continue-as-new keeps the run", async () => {
    const wish = { workflowId: "w", firstRunId: "r", leaseMs: -1 };
    const [runId] = (await openRuns(db, [wish])) as [bigint];
    await renewLeases(db, [{ runId, leaseMs: 60_000 }]);
    expect(await openRuns(db, [wish])).toEqual([runId]);
    expect(await closeExpiredRuns(db)).toBe(0);
  });

  test("of several is opened and renewed at once, each for the longest that is asked", async () => {
    const wish = (workflowId: string, leaseMs: number) => ({ workflowId, firstRunId: "r", leaseMs });
    const opened = await openRuns(db, [wish("a", -1), wish("b", 60_000), wish("a", -2), wish("b", -1)]);
    const [a, b] = opened as [bigint, bigint];
    expect(a).not.toBe(b);
    expect(opened).toEqual([a, b, a, b]);
    await renewLeases(db, [
      { runId: a, leaseMs: 60_000 },
      { runId: a, leaseMs: -1 },
    ]);
    expect(await closeExpiredRuns(db)).toBe(0);
  });

  test("is closed with the run's account", async () => {
    const { runId } = await freshToken(db);
    const more = { sent: 2, delivered: 1, failed: 0 };
    await renewLeases(db, [{ runId, leaseMs: 1_000, more: { sent: 3, delivered: 2, failed: 1 } }]);
    await renewLeases(db, [
      { runId, leaseMs: 1_000, more },
      { runId, leaseMs: 1_000, more },
    ]);
    expect(await closeRun(db, runId)).toEqual({ sent: 7, delivered: 4, failed: 1, putBack: 0 });
  });
});
