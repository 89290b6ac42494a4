import pino from "pino";
import { expect, test } from "vitest";
import { WorkerLease } from "../../../src/delivery/claims/worker-lease.ts";
import { SimulatedTime } from "../../support/simulation/simulated-time.ts";
import { claimsOf } from "../sender-parts.ts";

const LEASE_MS = 20_000;
const NEVER = new AbortController().signal;
const LOST = new Error("Connection terminated unexpectedly");

/** A lease whose statements take a second, and what became of each, in order. */
function start(stopping: AbortSignal) {
  const time = new SimulatedTime();
  const { clock } = time;
  const asked: string[] = [];
  const database = { isAway: false, hasEnded: false };
  let added = 0;
  const ask = async <T>(what: string, answer: () => T): Promise<T> => {
    asked.push(what);
    await clock.wait(1_000);
    if (database.isAway) throw LOST;
    return answer();
  };
  const lease = new WorkerLease({
    clock,
    log: pino({ level: "silent" }),
    leaseMs: LEASE_MS,
    stopping,
    add: () => {
      added += 1;
      return ask(`add ${added}`, () => added);
    },
    renew: (id) => ask(`renew ${id}`, () => !database.hasEnded || id > 1),
    remove: (id) => ask(`remove ${id}`, () => undefined),
  });
  /** Claims deliveries, or fails with this error. */
  const claim = (deliveries: number, error?: Error, stop = NEVER) =>
    lease.claim(async (workerId) => {
      if (error) throw error;
      return { deliveries: claimsOf(1, deliveries, { workerId }), touched: deliveries };
    }, stop);
  return { time, lease, claim, asked, database };
}

async function started(stopping = NEVER) {
  const parts = start(stopping);
  const starting = parts.lease.start();
  await parts.time.run(1_000);
  await starting;
  return parts;
}

test("a lease is renewed four times within its duration, and ends by the time before the last renewal was sent", async () => {
  const { time, lease, asked, database } = await started();
  expect(lease.isValid()).toBe(true);
  await time.run(40_000);
  expect(asked.slice(0, 4)).toEqual(["add 1", "renew 1", "renew 1", "renew 1"]);
  // One every five seconds and the second that it takes.
  expect(asked).toHaveLength(1 + 6);
  database.isAway = true;
  const last = 1_000 + 6 * 6_000 - 1_000;
  await time.run(last + LEASE_MS - 1);
  expect(lease.isValid()).toBe(true);
  await time.run(last + LEASE_MS);
  expect(lease.isValid()).toBe(false);
});

test.each<[string, (parts: Awaited<ReturnType<typeof started>>) => void]>([
  ["it has ended by the wall clock alone", ({ time }) => time.suspend(LEASE_MS)],
  ["a result has matched no claim", ({ lease }) => lease.verify()],
])("a lease is renewed before anything else is sent once %s", async (_what, doubt) => {
  const parts = await started();
  doubt(parts);
  expect(parts.lease.isValid()).toBe(false);
  expect(parts.asked).toEqual(["add 1", "renew 1"]);
  await parts.time.run(2_000);
  expect(parts.lease.isValid()).toBe(true);
});

test("a process ends no other's lease before its own has been valid for half of its duration, from the start and after an outage", async () => {
  const { time, lease, database } = await started();
  const mayEnd = async (ms: number) => {
    await time.run(ms);
    return lease.mayEndOthers();
  };
  expect([await mayEnd(LEASE_MS / 2 - 1), await mayEnd(LEASE_MS / 2)]).toEqual([false, true]);
  database.isAway = true;
  expect(await mayEnd(60_000)).toBe(false);
  database.isAway = false;
  await time.run(66_000);
  expect([lease.isValid(), lease.mayEndOthers()]).toEqual([true, false]);
  expect(await mayEnd(80_000)).toBe(true);
});

test("a process whose row another one has deleted loses its claims, and continues under a new id", async () => {
  const { time, lease, claim, asked, database } = await started();
  await claim(3);
  expect(lease.hasLost(1)).toBe(false);
  database.hasEnded = true;
  await time.run(9_000);
  expect([lease.hasLost(1), lease.ids, lease.isValid()]).toEqual([true, [2], true]);
  expect(asked.slice(-2)).toEqual(["renew 1", "add 2"]);
});

test("a claim whose answer is lost is repeated under a new id, and the old row is removed with the last claim that is known", async () => {
  const { time, lease, claim, asked } = await started();
  await claim(2);
  const ids: number[] = [];
  const again = lease.claim(async (workerId) => {
    if (ids.push(workerId) === 1) throw LOST;
    return { deliveries: claimsOf(1, 1, { workerId }), touched: 1 };
  }, NEVER);
  while (ids.length < 2) await time.run(time.now + 1_000);
  await again;
  expect([ids, lease.ids]).toEqual(Array(2).fill([1, 2]));
  lease.settle(1);
  expect(asked).not.toContain("remove 1");
  lease.settle(1);
  lease.settle(2);
  expect(asked.filter((each) => each.startsWith("remove"))).toEqual(["remove 1"]);
  expect(lease.ids).toEqual([2]);
});

test("a claim that fails for good, or whose answer is lost while it is stopped, is not repeated; one that came is returned", async () => {
  const { claim } = await started();
  const stop = new AbortController();
  const claimed = claim(1, undefined, stop.signal);
  stop.abort(new Error("stopped"));
  expect((await claimed).deliveries).toHaveLength(1);
  await expect(claim(1, new Error("syntax error"))).rejects.toThrow("syntax error");
  await expect(claim(1, LOST, stop.signal)).rejects.toThrow();
});

test("a process that stops adds no row any more, and removes those that it has when it closes", async () => {
  const stopping = new AbortController();
  const { time, lease, asked, database } = await started(stopping.signal);
  stopping.abort(new Error("stopped"));
  database.hasEnded = true;
  await time.run(20_000);
  expect(asked.filter((each) => each.startsWith("add"))).toEqual(["add 1"]);
  await expect(lease.start()).rejects.toThrow("stopped");
  const other = await started();
  const closed = other.lease.close();
  // The renewals have ended.
  await other.time.run(60_000);
  await closed;
  expect(other.asked).toEqual(["add 1", "remove 1"]);
});
