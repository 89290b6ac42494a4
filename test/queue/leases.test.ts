import { describe, expect, test } from "vitest";
import { adoptRetries } from "../../src/queue/retry-groups.ts";
import { closeExpiredRuns, closeRun, openRuns, type RunWish, renewLeases } from "../../src/queue/runs.ts";
import { addWorker, endExpiredWorkers, listLiveWorkers, renewWorker } from "../../src/queue/workers.ts";
import { claim, freshClaimant, freshWorker, openQueueDatabase, queue, record } from "./queue.ts";

const db = await openQueueDatabase();

describe("a run's lease", () => {
  const wish = (workflowId: string, leaseMs: number) => ({ workflowId, firstRunId: "r", leaseMs });
  const idsOf = async (wishes: RunWish[]) => (await openRuns(db, wishes)).map(({ id }) => id);

  test("of several is opened and renewed at once, each for the longest that is asked, and continue-as-new keeps the run", async () => {
    const opened = await idsOf([wish("a", -1), wish("b", 60_000), wish("a", -2), wish("b", -1)]);
    const [a, b] = opened as [number, number];
    expect(a).not.toBe(b);
    expect(opened).toEqual([a, b, a, b]);
    // In the order of their keys, so that calls at the same time do not wait for each other in a circle.
    const ofOne = ["x", "y"].map((firstRunId, n) => ({ workflowId: "c", firstRunId, leaseMs: 60_000 - n }));
    const [x, y] = (await idsOf(ofOne)) as [number, number];
    expect(x).toBeLessThan(y);
    const leases = [60_000, -1].map((leaseMs) => ({ runId: a, leaseMs, sent: 0, delivered: 0, failed: 0 }));
    await renewLeases(db, leases);
    expect(await idsOf([wish("a", -1)])).toEqual([a]);
    expect(await closeExpiredRuns(db)).toBe(0);
  });

  test("that has expired is found behind any number of runs that are closed or hold theirs", async () => {
    const several = (leaseMs: number) =>
      Array.from({ length: 20 }, (_, n) => wish(`${leaseMs} ${n}`, leaseMs));
    await openRuns(db, [...several(-1), ...several(60_000)]);
    expect(await closeExpiredRuns(db)).toBe(20);
    await openRuns(db, [wish("a", -1)]);
    expect(await closeExpiredRuns(db)).toBe(1);
  });

  test("is closed with the run's account", async () => {
    const { runId } = await freshClaimant(db);
    const more = { sent: 2, delivered: 1, failed: 0 };
    await renewLeases(db, [{ runId, leaseMs: 1_000, sent: 3, delivered: 2, failed: 1 }]);
    await renewLeases(db, [
      { runId, leaseMs: 1_000, ...more },
      { runId, leaseMs: 1_000, ...more, failed: 4 },
    ]);
    expect(await closeRun(db, runId)).toEqual({ sent: 7, delivered: 4, failed: 5, open: 0, putBack: 0 });
  });
});

test("a run that was closed is closed when it is asked for again, whatever failed since", async () => {
  await queue(db, 1);
  const claimant = await freshClaimant(db);
  const deliveries = await claim(db, claimant);
  expect(await closeRun(db, claimant.runId)).toMatchObject({ open: 0 });
  await record(db, deliveries, 500);
  expect(await closeRun(db, claimant.runId)).toMatchObject({ open: 0 });
  const next = await freshClaimant(db);
  expect(await adoptRetries(db, next.runId)).toBe(1);
});

test("a run is as old as the time since its start", async () => {
  const wish = { workflowId: "w", firstRunId: "r", leaseMs: 1_000 };
  const [run] = await openRuns(db, [wish]);
  // In a transaction, time stands still.
  await db.transaction(async (trx) => {
    await trx("runs").update({ started: trx.raw("now() - interval '1 hour'") });
    expect(await openRuns(trx, [wish])).toMatchObject([{ id: run?.id, ageMs: 3_600_000 }]);
  });
});

describe("expired workers", () => {
  test("are not ended by a process whose own leases have all expired, as after an outage of the database", async () => {
    const own = await freshWorker(db, "own", -1);
    await freshWorker(db, "other", -1);
    expect(await endExpiredWorkers(db, [own])).toEqual([]);
    await renewWorker(db, own, 60_000);
    expect(await endExpiredWorkers(db, [own])).toEqual(["other"]);
  });

  test("do not count as live; live are one for each process, however many leases it has", async () => {
    const worker = (host: number) => ({ name: `host/${host}`, taskQueue: `worker-${host}` });
    for (const host of [1, 3]) await addWorker(db, { ...worker(host), leaseMs: -1 });
    for (const host of [2, 3, 2]) await addWorker(db, { ...worker(host), leaseMs: 60_000 });
    const live = [worker(2), worker(3)];
    expect(await listLiveWorkers(db)).toEqual(live);
    await endExpiredWorkers(db);
    expect(await listLiveWorkers(db)).toEqual(live);
  });
});
