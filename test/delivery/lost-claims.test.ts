import { setTimeout as wait } from "node:timers/promises";
import { expect, type TestContext, test } from "vitest";
import { type Receiver, type Reply, startReceiver } from "../../demo/receiver.ts";
import { rows } from "../../src/db/database.ts";
import { assignGroups } from "../../src/db/queue/retry-groups.ts";
import type { PumpResult } from "../../workflows/activities.ts";
import { trustedAuthority } from "../support/test-service.ts";
import {
  type EngineParts,
  type Fault,
  faulty,
  freshRun,
  observed,
  pump,
  queueFor,
  startEngine,
} from "./engine-parts.ts";

const DELIVERIES = 30;
const FIRST_CLAIM = /^\s*with recursive waiting/;
const RETRY_CLAIM = /^\s*with members/;
const WEBHOOKS = /from unnest\(.*\) k\(id, version\)/;
const CONTENTS = /^select id, user_id, process, test, traceparent, recipients/;
const RELEASE = /^update queue set claims = claims - 1/;
const RENEWAL = /^update workers set lease_until/;

// The tests run at the same time, since most of them wait. Each has its own engine, database and receiver.

/** An engine with its receiver, and the faults to come: each one befalls the next statement that it fits. */
interface Faulty {
  parts: EngineParts;
  receiver: Receiver;
  faults: { next: [RegExp, Fault][] };
}

async function start({ onTestFinished }: TestContext, reply?: Reply): Promise<Faulty> {
  const faults: Faulty["faults"] = { next: [] };
  const nextFault = (sql: string) => {
    const place = faults.next.findIndex(([statement]) => statement.test(sql));
    return place === -1 ? undefined : faults.next.splice(place, 1)[0]?.[1];
  };
  let engines = 0;
  // The first engine has the faults, others on the same database have none.
  const parts = await startEngine(
    { HEARTBEAT_TIMEOUT: "2s", RETRY_INITIAL_DELAY: "100ms" },
    {
      wrap(db) {
        engines += 1;
        return engines === 1 ? faulty(db, nextFault) : db;
      },
    },
  );
  const receiver = await startReceiver(await (await trustedAuthority()).issue(["localhost"]), reply);
  onTestFinished(parts.end);
  onTestFinished(receiver.close);
  return { parts, receiver, faults };
}

/** Pumps until a pump ends without an error, as Temporal would have it. */
async function pumpInTheEnd(parts: EngineParts, runId: number): Promise<PumpResult> {
  for (;;) {
    const result = await pump(parts.engine, runId).catch(() => undefined);
    if (result) return result;
  }
}

const states = ({ db }: EngineParts) =>
  rows(
    db,
    "select state, attempts, reason, count(*)::int as n from all_deliveries group by 1, 2, 3 order by 1",
  );

const claimed = async ({ db }: EngineParts) =>
  (await rows(db, "select from all_deliveries where state = 'delivering'")).length;

/** Pumps until everything is delivered: what was claimed with a lost answer is free only after a moment. */
async function expectAllDelivered({ expect }: TestContext, parts: EngineParts, runId: number): Promise<void> {
  await expect
    .poll(async () => {
      await pumpInTheEnd(parts, runId);
      return states(parts);
    })
    .toEqual([{ state: "delivered", attempts: 1, reason: null, n: DELIVERIES }]);
}

const cases: [string, RegExp, Fault][] = [
  ["the claim's answer is lost", FIRST_CLAIM, "answer lost"],
  ["the claim does not come through", FIRST_CLAIM, "refused"],
  ["the webhooks of what was claimed cannot be read", WEBHOOKS, "refused"],
  ["the events of what was claimed cannot be read", CONTENTS, "refused"],
];
test.concurrent.for(cases)(
  "each delivery is sent, and once, when %s",
  async ([_what, statement, fault], context) => {
    const { parts, receiver, faults } = await start(context);
    await queueFor(parts, receiver.url, { webhooks: 3, events: DELIVERIES / 3 });
    faults.next = [[statement, fault]];
    await expectAllDelivered(context, parts, await freshRun(parts.db));
    expect(faults.next).toEqual([]);
    expect(receiver.received).toHaveLength(DELIVERIES);
  },
);

test.concurrent("each delivery is sent, and once, when many claims fail, in one way and another", async (context) => {
  const { parts, receiver, faults } = await start(context);
  await queueFor(parts, receiver.url, { webhooks: 3, events: DELIVERIES / 3 });
  faults.next = [...cases, ...cases].map(([, statement, fault]) => [statement, fault]);
  await expectAllDelivered(context, parts, await freshRun(parts.db));
  expect(receiver.received).toHaveLength(DELIVERIES);
});

test.concurrent("each delivery is sent, and once, when the worker claims again what it has released with a lost answer", async (context) => {
  // As many as are not released for want of room.
  const deliveries = 12;
  const answering = Promise.withResolvers<void>();
  const { parts, receiver, faults } = await start(context, async () => {
    await answering.promise;
    return 200;
  });
  await queueFor(parts, receiver.url, { webhooks: 1, events: deliveries });
  const runId = await freshRun(parts.db);
  const stop = new AbortController();
  const stopped = pump(parts.engine, runId, stop.signal);
  await context.expect.poll(() => receiver.received.length).toBeGreaterThan(0);
  faults.next = [[RELEASE, "answer lost"]];
  stop.abort();
  await context.expect.poll(() => claimed(parts)).toBeLessThan(deliveries);
  const again = pump(parts.engine, runId);
  await context.expect.poll(() => claimed(parts)).toBe(deliveries);
  expect(faults.next).toEqual([]);
  answering.resolve();
  await Promise.all([stopped, again, pump(parts.another(), runId)]);
  expect(await parts.db("deliveries").where({ outcome: "delivered" }).pluck("attempts")).toEqual(
    Array(deliveries).fill(1),
  );
  expect(receiver.received).toHaveLength(deliveries);
});

test.concurrent("each retry is made, and once, when the claim's answer is lost", async (context) => {
  const { parts, receiver, faults } = await start(context, ({ attempt }) => (attempt === 1 ? 500 : 200));
  await queueFor(parts, receiver.url, { webhooks: 3, events: DELIVERIES / 3 });
  const runId = await freshRun(parts.db);
  await pump(parts.engine, runId);
  const groups = new Set((await assignGroups(parts.db, runId)).map(({ group }) => group));
  faults.next = [[RETRY_CLAIM, "answer lost"]];
  const pass = { horizonMs: 100, forMs: 60_000 };
  await context.expect
    .poll(async () => {
      for (const group of groups)
        await parts.engine.retries.run({ runId, group }, pass, new AbortController().signal).catch(() => {});
      return states(parts);
    })
    .toEqual([{ state: "delivered", attempts: 2, reason: null, n: DELIVERIES }]);
  expect(receiver.received).toHaveLength(2 * DELIVERIES);
});

/** Engines of which the first is stopped with the next answer to a statement: the stop and the answer come together. */
async function startStoppedBy({ onTestFinished }: TestContext, statement: RegExp, reply?: Reply) {
  let engines = 0;
  let stop: AbortController | undefined;
  const parts = await startEngine(
    { RETRY_INITIAL_DELAY: "1m" },
    {
      wrap(db) {
        engines += 1;
        return engines > 1 ? db : observed(db, (sql) => void (statement.test(sql) && stop?.abort()));
      },
    },
  );
  const receiver = await startReceiver(await (await trustedAuthority()).issue(["localhost"]), reply);
  onTestFinished(parts.end);
  onTestFinished(receiver.close);
  const stoppedByNext = () => {
    stop = new AbortController();
    return stop.signal;
  };
  return { parts, receiver, stoppedByNext };
}

test.concurrent("what a claim brings just as its pump is told to stop is given back at once, and sent by another worker", async (context) => {
  const { parts, receiver, stoppedByNext } = await startStoppedBy(context, FIRST_CLAIM);
  await queueFor(parts, receiver.url, { webhooks: 3, events: DELIVERIES / 3 });
  expect(await pump(parts.engine, await freshRun(parts.db), stoppedByNext())).toMatchObject({
    end: "stopped",
  });
  expect(await claimed(parts)).toBe(0);
  const sent = receiver.received.length;
  const other = await pump(parts.another(), await freshRun(parts.db));
  expect(other).toMatchObject({ delivered: DELIVERIES - sent, end: "done" });
  expect(receiver.received).toHaveLength(DELIVERIES);
});

test.concurrent("what a claim brings just as its retry pass is told to stop is given back at once, and sent by another worker", async (context) => {
  const { parts, receiver, stoppedByNext } = await startStoppedBy(context, RETRY_CLAIM, ({ attempt }) =>
    attempt === 1 ? 500 : 200,
  );
  await queueFor(parts, receiver.url, { webhooks: 1, events: DELIVERIES });
  const runId = await freshRun(parts.db);
  await pump(parts.engine, runId);
  const [group] = await assignGroups(parts.db, runId);
  const pass = { horizonMs: 1_000, forMs: 60_000 };
  const ofRun = { runId, group: group?.group as number };
  await parts.db.raw("update retries set due = now()");
  const stopped = await parts.engine.retries.run(ofRun, pass, stoppedByNext());
  expect(stopped).toMatchObject({ complete: false });
  expect(await parts.db("retries").whereNotNull("claimed_by")).toEqual([]);
  const other = await parts.another().retries.run(ofRun, pass, new AbortController().signal);
  expect(stopped.delivered + other.delivered).toBe(DELIVERIES);
  expect(receiver.received).toHaveLength(2 * DELIVERIES);
});

/** Engines of which the first stops, once it is armed, with such a claim, whose answer it loses. */
async function startLosing({ onTestFinished }: TestContext, claim: RegExp, reply?: Reply) {
  let engines = 0;
  let isArmed = false;
  const stop = new AbortController();
  const loseAndStop = (sql: string): Fault | undefined => {
    if (!isArmed || stop.signal.aborted || !claim.test(sql)) return undefined;
    stop.abort();
    return "answer lost";
  };
  const parts = await startEngine(
    { RETRY_INITIAL_DELAY: "1m" },
    {
      stopping: stop.signal,
      wrap(db) {
        engines += 1;
        return engines > 1 ? db : faulty(db, loseAndStop);
      },
    },
  );
  const receiver = await startReceiver(await (await trustedAuthority()).issue(["localhost"]), reply);
  onTestFinished(parts.end);
  onTestFinished(receiver.close);
  const armed = () => {
    isArmed = true;
    return stop.signal;
  };
  return { parts, receiver, armed };
}

test.concurrent("a pump whose claim loses its answer while its process stops ends without an error, and another worker sends all", async (context) => {
  const { parts, receiver, armed } = await startLosing(context, FIRST_CLAIM);
  await queueFor(parts, receiver.url, { webhooks: 3, events: DELIVERIES / 3 });
  const stopped = await pump(parts.engine, await freshRun(parts.db), armed());
  expect(stopped).toMatchObject({ sent: 0, end: "stopped" });
  // Before the lease expires.
  await context.expect.poll(() => parts.db("workers").pluck("id")).toEqual([]);
  expect(await pump(parts.another(), await freshRun(parts.db))).toMatchObject({ delivered: DELIVERIES });
  expect(receiver.received).toHaveLength(DELIVERIES);
});

test.concurrent("a retry pass whose claim loses its answer while its process stops ends without an error, and another worker sends all", async (context) => {
  const { parts, receiver, armed } = await startLosing(context, RETRY_CLAIM, ({ attempt }) =>
    attempt === 1 ? 500 : 200,
  );
  await queueFor(parts, receiver.url, { webhooks: 1, events: DELIVERIES });
  const runId = await freshRun(parts.db);
  await pump(parts.engine, runId);
  const [group] = await assignGroups(parts.db, runId);
  const ofRun = { runId, group: group?.group as number };
  await parts.db.raw("update retries set due = now()");
  const pass = { horizonMs: 1_000, forMs: 60_000 };
  const stopped = await parts.engine.retries.run(ofRun, pass, armed());
  expect(stopped).toMatchObject({ sent: 0, complete: false });
  await context.expect.poll(() => parts.db("workers").pluck("id")).toEqual([]);
  const other = await parts.another().retries.run(ofRun, pass, new AbortController().signal);
  expect(other.delivered).toBe(DELIVERIES);
  expect(receiver.received).toHaveLength(2 * DELIVERIES);
});

test.concurrent("an attempt that cannot be recorded holds up no other, and its delivery is tried again until it is given up", async (context) => {
  const { parts, receiver } = await start(context);
  await queueFor(parts, `${receiver.url}/well`, { webhooks: 2, events: 5 });
  await queueFor(parts, `${receiver.url}/poison`, { webhooks: 1, events: 1 });
  await parts.db.raw(
    "alter table deliveries add constraint poison check (webhook_id < 3 or outcome <> 'delivered')",
  );
  const runId = await freshRun(parts.db);
  await context.expect
    .poll(async () => {
      await pumpInTheEnd(parts, runId);
      return states(parts);
    })
    .toEqual([
      { state: "delivered", attempts: 1, reason: null, n: 10 },
      { state: "failed", attempts: 0, reason: "interrupted", n: 1 },
    ]);
  expect(receiver.received.filter(({ path }) => path.startsWith("/well"))).toHaveLength(10);
});

test.concurrent("a delivery whose result matches no claim, though its worker lives, is tried again", async (context) => {
  let parts: EngineParts | undefined;
  const receiver = await startReceiver(
    await (await trustedAuthority()).issue(["localhost"]),
    async ({ attempt }) => {
      if (attempt === 1) await parts?.db.raw("update queue set attempts = 1");
      return 200;
    },
  );
  // No lease expires within the test.
  parts = await startEngine({ HEARTBEAT_TIMEOUT: "10m" });
  context.onTestFinished(parts.end);
  context.onTestFinished(receiver.close);
  const { db, engine } = parts;
  await queueFor(parts, receiver.url, { webhooks: 1, events: 1 });
  const runId = await freshRun(db);
  await context.expect
    .poll(async () => {
      await pump(engine, runId);
      return db("deliveries").pluck("attempts");
    })
    .toEqual([2]);
  expect(receiver.received).toHaveLength(2);
});

test.concurrent("a delivery whose event is not stored, as after a partial restore, holds up no other", async (context) => {
  const { parts, receiver } = await start(context);
  await queueFor(parts, receiver.url, { webhooks: 3, events: DELIVERIES / 3 });
  await parts.db.raw("delete from events where id = (select event_id from queue order by id limit 1)");
  const runId = await freshRun(parts.db);
  await context.expect
    .poll(async () => {
      await pump(parts.engine, runId).catch(() => {});
      return (await parts.db("deliveries").where({ outcome: "delivered" }).pluck("id")).length;
    })
    .toBe(DELIVERIES - 3);
  expect(receiver.received).toHaveLength(DELIVERIES - 3);
});

/** An engine whose lease has run out, since its renewals fail from now on; it has delivered one delivery before. */
async function startExpired(context: TestContext): Promise<Faulty & { runId: number }> {
  const { parts, receiver, faults } = await start(context);
  await queueFor(parts, `${receiver.url}/first`, { webhooks: 1, events: 1 });
  expect(parts.engine.lease.isValid()).toBe(false);
  const runId = await freshRun(parts.db);
  await pump(parts.engine, runId);
  expect(parts.engine.lease.isValid()).toBe(true);
  // More often than any test can wait for.
  faults.next = Array.from({ length: 1_000 }, () => [RENEWAL, "refused"]);
  await context.expect.poll(() => parts.engine.lease.isValid()).toBe(false);
  return { parts, receiver, faults, runId };
}

test.concurrent("nothing is sent while the lease has run out, as when the database does not respond", async (context) => {
  const { parts, receiver, faults, runId } = await startExpired(context);
  await queueFor(parts, receiver.url, { webhooks: 1, events: DELIVERIES });
  const pumped = pump(parts.engine, runId);
  await context.expect.poll(() => claimed(parts)).toBe(DELIVERIES);
  // Several times as long as the sender takes to look for what it may start.
  await wait(1_000);
  expect(receiver.received).toHaveLength(1);
  faults.next = [];
  expect(await pumped).toMatchObject({ delivered: DELIVERIES });
});

test.concurrent("a worker whose lease another process has ended sends nothing of what it had claimed", async (context) => {
  const { parts, receiver, faults, runId } = await startExpired(context);
  const [row] = await rows<{ id: number }>(parts.db, "select id from workers");
  const id = row?.id as number;
  await queueFor(parts, receiver.url, { webhooks: 1, events: DELIVERIES });
  const late = pump(parts.engine, runId);
  await context.expect.poll(() => claimed(parts)).toBe(DELIVERIES);
  const other = parts.another();
  await other.lease.start();
  await context.expect.poll(() => parts.db("workers").where({ id })).toEqual([]);
  expect(await pump(other, runId)).toMatchObject({ delivered: DELIVERIES });
  expect(parts.engine.lease.hasLost(id)).toBe(false);
  faults.next = [];
  await context.expect.poll(() => parts.engine.lease.hasLost(id)).toBe(true);
  expect(await late).toMatchObject({ sent: 0 });
  expect(receiver.received).toHaveLength(1 + DELIVERIES);
});

test.concurrent("a worker whose result matches no claim reads its lease before it sends more, long before the next renewal", async (context) => {
  const [deliveries, window] = [200, 4];
  const held: (() => void)[] = [];
  const receiver = await startReceiver(
    await (await trustedAuthority()).issue(["localhost"]),
    async ({ attempt }) => {
      if (attempt === 1 && held.length < window) await new Promise<void>((resolve) => held.push(resolve));
      return 200;
    },
  );
  // Its lease is renewed four times in ten minutes.
  const parts = await startEngine({ HEARTBEAT_TIMEOUT: "10m", DELIVERY_TIMEOUT: "60s" });
  context.onTestFinished(parts.end);
  context.onTestFinished(receiver.close);
  await queueFor(parts, receiver.url, { webhooks: 1, events: deliveries });
  const late = pump(parts.engine, await freshRun(parts.db));
  await context.expect.poll(() => held.length).toBe(window);
  await context.expect.poll(() => claimed(parts)).toBe(deliveries);
  const [row] = await rows<{ id: number }>(parts.db, "select id from workers");
  const id = row?.id as number;
  // As a process does that takes it for dead.
  await parts.db("workers").where({ id }).delete();
  expect(await pump(parts.another(), await freshRun(parts.db))).toMatchObject({ delivered: deliveries });
  expect(receiver.received).toHaveLength(window + deliveries);

  expect(parts.engine.lease.hasLost(id)).toBe(false);
  held[0]?.();
  await context.expect.poll(() => parts.engine.lease.hasLost(id)).toBe(true);
  for (const answer of held) answer();
  expect(await late).toMatchObject({ sent: 0 });
  // A few requests may start, one after the other, before the result of the first is known to match nothing.
  expect(receiver.received.length).toBeLessThanOrEqual(window + deliveries + deliveries / 10);
});

test.concurrent("what a claim brings after its worker was found dead is sent only by the worker that claims it then", async (context) => {
  const [asked, answered] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  let isFirst = true;
  // The lease is renewed four times in ten minutes, and when the test says so.
  const parts = await startEngine(
    { HEARTBEAT_TIMEOUT: "10m" },
    {
      wrap: (db) =>
        observed(db, async (sql) => {
          if (!isFirst || !FIRST_CLAIM.test(sql)) return;
          isFirst = false;
          asked.resolve();
          await answered.promise;
        }),
    },
  );
  const receiver = await startReceiver(await (await trustedAuthority()).issue(["localhost"]));
  context.onTestFinished(parts.end);
  context.onTestFinished(receiver.close);
  await queueFor(parts, receiver.url, { webhooks: 3, events: DELIVERIES / 3 });
  const late = pump(parts.engine, await freshRun(parts.db));
  await asked.promise;
  const [row] = await rows<{ id: number }>(parts.db, "select id from workers");
  const id = row?.id as number;
  // As a process does that takes it for dead.
  await parts.db("workers").where({ id }).delete();
  parts.engine.lease.verify();
  await context.expect.poll(() => parts.engine.lease.isValid()).toBe(true);
  expect(parts.engine.lease.hasLost(id)).toBe(true);
  expect(await pump(parts.another(), await freshRun(parts.db))).toMatchObject({ delivered: DELIVERIES });
  answered.resolve();
  expect(await late).toMatchObject({ sent: 0 });
  expect(parts.engine.lease.hasLost(id)).toBe(true);
  expect(receiver.received).toHaveLength(DELIVERIES);
});
