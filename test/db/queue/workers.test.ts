import { describe, expect, test } from "vitest";
import { rows } from "../../../src/db/database.ts";
import { type Claimant, claimGroup, claimPending } from "../../../src/db/queue/claims.ts";
import { recordAttempts } from "../../../src/db/queue/results.ts";
import { assignGroups } from "../../../src/db/queue/retry-groups.ts";
import {
  addWorker,
  endExpiredWorkers,
  listLiveWorkers,
  removeWorker,
  renewWorker,
} from "../../../src/db/queue/workers.ts";
import {
  ALL,
  freshClaimant,
  freshWorker,
  NO_WAIT,
  openQueueDatabase,
  queue,
  result,
  SPACING,
  stored,
} from "./queue.ts";

const db = await openQueueDatabase();

/** What a claim gets now. */
const claim = async (claimant: Claimant) => (await claimPending(db, claimant, ALL)).deliveries;

const attempts = () => rows(db, "select number, status from all_attempts order by number");

describe("a worker's lease", () => {
  test("that has expired frees what the worker has claimed, once somebody ends it", async () => {
    await queue(db, 3);
    const dead = await freshClaimant(db, -1);
    const claimed = await claim(dead);
    const living = await freshClaimant(db);
    expect(await claim(living)).toEqual([]);
    expect(await endExpiredWorkers(db)).toEqual(["test"]);
    const ids = claimed.map(({ id }) => id);
    expect(await stored(db, ids)).toMatchObject(Array(3).fill({ state: "pending", claims: 1 }));
    expect((await claim(living)).map(({ id }) => id)).toEqual(ids);
  });

  test("frees retries in the same way", async () => {
    await queue(db, 3);
    const dead = await freshClaimant(db, -1);
    await recordAttempts(
      db,
      (await claim(dead)).map((delivery) => result(delivery, 500)),
      NO_WAIT,
    );
    await assignGroups(db, dead.runId);
    const group = { group: 1, limit: 10, excluded: [] };
    const living = { ...(await freshClaimant(db)), runId: dead.runId };
    const claimed = (await claimGroup(db, dead, group)).deliveries;
    expect(claimed).toHaveLength(3);
    expect((await claimGroup(db, living, group)).deliveries).toEqual([]);
    await endExpiredWorkers(db);
    const again = (await claimGroup(db, living, group)).deliveries;
    expect(again.map(({ id }) => id)).toEqual(claimed.map(({ id }) => id));
    const late = claimed.map((delivery) => result(delivery, 200));
    expect(await recordAttempts(db, late, SPACING)).toEqual(new Map());
  });

  test("holds what the worker has claimed while it is renewed, late too, as long as nobody has ended it", async () => {
    await queue(db, 3);
    const claimant = await freshClaimant(db, -1);
    const claimed = await claim(claimant);
    expect(await renewWorker(db, claimant.workerId, 60_000)).toBe(true);
    expect(await endExpiredWorkers(db)).toEqual([]);
    expect(await claim(await freshClaimant(db))).toEqual([]);
    const results = claimed.map((delivery) => result(delivery, 200));
    expect((await recordAttempts(db, results, SPACING)).size).toBe(3);
  });

  test("cannot be renewed once it has been ended", async () => {
    const id = await freshWorker(db, "late", -1);
    expect(await endExpiredWorkers(db)).toEqual(["late"]);
    expect(await renewWorker(db, id, 60_000)).toBe(false);
    expect(await db("workers").pluck("id")).toEqual([]);
  });

  test("is ended by one of the processes that find it expired, and never when it is renewed meanwhile", async () => {
    const living = await freshWorker(db, "living", 60_000);
    for (let n = 0; n < 20; n += 1) {
      const id = await freshWorker(db, `worker ${n}`, -1);
      const [renewed, ...ended] = await Promise.all([
        renewWorker(db, id, 60_000),
        endExpiredWorkers(db),
        endExpiredWorkers(db),
      ]);
      expect(ended.flat()).toEqual(renewed ? [] : [`worker ${n}`]);
      await removeWorker(db, id);
    }
    expect(await db("workers").pluck("id")).toEqual([living]);
  });

  test("is not ended by a process whose own leases have all expired, as after an outage of the database", async () => {
    const own = await freshWorker(db, "own", -1);
    await freshWorker(db, "other", -1);
    expect(await endExpiredWorkers(db, [own])).toEqual([]);
    await renewWorker(db, own, 60_000);
    expect(await endExpiredWorkers(db, [own])).toEqual(["other"]);
  });

  test("that somebody has ended lets the worker claim nothing more", async () => {
    await queue(db, 4);
    const late = await freshClaimant(db, -1);
    const failed = (await claimPending(db, late, { ...ALL, limit: 2 })).deliveries;
    await recordAttempts(
      db,
      failed.map((delivery) => result(delivery, 500)),
      NO_WAIT,
    );
    await assignGroups(db, late.runId);
    await endExpiredWorkers(db);
    // It would be free at once, for itself too: each claim would count, and after ten of them a delivery is given up.
    expect(await claim(late)).toHaveLength(0);
    const group = { group: 1, limit: 10, excluded: [] };
    expect((await claimGroup(db, late, group)).deliveries).toHaveLength(0);
    expect(await rows(db, "select distinct claims from all_deliveries")).toEqual([{ claims: 0 }]);
  });

  test("leaves the claims of all others alone", async () => {
    await queue(db, 4);
    const [dead, living] = [await freshClaimant(db, -1), await freshClaimant(db)];
    await claimPending(db, dead, { ...ALL, limit: 2 });
    await claimPending(db, living, { ...ALL, limit: 2 });
    await endExpiredWorkers(db);
    expect(await claim(await freshClaimant(db))).toHaveLength(2);
    expect(await db("queue").where({ claimed_by: living.workerId }).pluck("claims")).toEqual([1, 1]);
  });
});

describe("the workers that live", () => {
  test("are one for each process, however many leases it has, and none whose leases have all expired", async () => {
    const add = (name: string, taskQueue: string, leaseMs: number) =>
      addWorker(db, { name, taskQueue, leaseMs });
    await add("host/1", "worker-1", -1);
    await add("host/2", "worker-2", 60_000);
    await add("host/3", "worker-3", -1);
    await add("host/3", "worker-3", 60_000);
    await add("host/2", "worker-2", 60_000);
    expect(await listLiveWorkers(db)).toEqual([
      { name: "host/2", taskQueue: "worker-2" },
      { name: "host/3", taskQueue: "worker-3" },
    ]);
    await endExpiredWorkers(db);
    expect(await listLiveWorkers(db)).toHaveLength(2);
  });
});

describe("a late result", () => {
  test("matches nothing once another worker has claimed the delivery", async () => {
    await queue(db, 3);
    const zombie = await freshClaimant(db, -1);
    const claimed = await claim(zombie);
    await endExpiredWorkers(db);
    const successor = await claim(await freshClaimant(db));
    expect(successor).toHaveLength(3);
    const late = claimed.map((delivery) => result(delivery, 500));
    expect(await recordAttempts(db, late, SPACING)).toEqual(new Map());
    const states = await recordAttempts(
      db,
      successor.map((delivery) => result(delivery, 200)),
      SPACING,
    );
    expect([...states.values()]).toEqual(["delivered", "delivered", "delivered"]);
    expect(await recordAttempts(db, late, SPACING)).toEqual(new Map());
    expect(await attempts()).toEqual(Array(3).fill({ number: 1, status: 200 }));
  });

  test("counts while nobody has claimed the delivery since: no attempt is made twice for it", async () => {
    await queue(db, 1);
    const zombie = await freshClaimant(db, -1);
    const claimed = await claim(zombie);
    await endExpiredWorkers(db);
    const late = claimed.map((delivery) => result(delivery, 200));
    expect([...(await recordAttempts(db, late, SPACING)).values()]).toEqual(["delivered"]);
    expect(await claim(await freshClaimant(db))).toEqual([]);
    expect(await attempts()).toEqual([{ number: 1, status: 200 }]);
  });

  test("of an attempt before the last matches nothing, though the same worker has the delivery again", async () => {
    await queue(db, 1);
    const claimant = await freshClaimant(db);
    const first = (await claim(claimant)).map((delivery) => result(delivery, 500));
    await recordAttempts(db, first, NO_WAIT);
    await assignGroups(db, claimant.runId);
    const group = { group: 1, limit: 10, excluded: [] };
    const [again] = (await claimGroup(db, claimant, group)).deliveries;
    const late = first.map((one) => ({ ...one, token: { ...one.token, table: "retries" as const } }));
    expect(await recordAttempts(db, [...first, ...late], SPACING)).toEqual(new Map());
    expect((await recordAttempts(db, [result(again as never, 200)], SPACING)).size).toBe(1);
    expect(await attempts()).toEqual([
      { number: 1, status: 500 },
      { number: 2, status: 200 },
    ]);
  });

  test("and the claim of another, at the same time, leave the attempt to one of them", async () => {
    await queue(db, 60);
    const zombie = await freshClaimant(db, -1);
    const claimed = await claim(zombie);
    await endExpiredWorkers(db);
    const living = await freshClaimant(db);
    const recorded: string[] = [];
    const claimedAgain: string[] = [];
    await Promise.all([
      ...claimed.map(async (delivery) => {
        const states = await recordAttempts(db, [result(delivery, 200)], SPACING);
        recorded.push(...states.keys());
      }),
      (async () => {
        for (let n = 0; n < 30; n += 1) {
          const { deliveries } = await claimPending(db, living, { ...ALL, limit: 2 });
          claimedAgain.push(...deliveries.map(({ id }) => id));
        }
      })(),
    ]);
    expect([...recorded, ...claimedAgain].sort()).toEqual(claimed.map(({ id }) => id).sort());
    expect(await db("deliveries").pluck("id")).toHaveLength(recorded.length);
    expect(await db("queue").where({ claimed_by: living.workerId }).pluck("id")).toHaveLength(
      claimedAgain.length,
    );
  });
});
