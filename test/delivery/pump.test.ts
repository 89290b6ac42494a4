import { setTimeout as wait } from "node:timers/promises";
import { afterEach, beforeEach, expect, onTestFinished, test } from "vitest";
import { type Receiver, type Reply, startReceiver } from "../../demo/receiver.ts";
import { type Db, rows } from "../../src/db/database.ts";
import { publishEvents } from "../../src/db/events/publish.ts";
import { anEvent } from "../support/new-event.ts";
import { trustedAuthority } from "../support/test-service.ts";
import {
  type EngineParts,
  freshRun,
  intercepted,
  observed,
  pump,
  queueFor,
  startEngine,
} from "./engine-parts.ts";

const LINGERING = { lingers: true, forMs: 600_000 };

/**
 * For tests whose engines share the thread with each other and with the receiver: many connections at once would take it longer than
 * the timeout of a connection if the machine is busy.
 */
const FEW_CONNECTIONS = { DELIVERY_TIMEOUT: "60s", DELIVERY_MAX_PER_HOST: "8" };

let parts: EngineParts;
const receivers: Receiver[] = [];

beforeEach(async () => {
  // Longer than a test may take: what is silent stays silent.
  parts = await startEngine({ DELIVERY_TIMEOUT: "60s" });
});
afterEach(async () => {
  await Promise.all(receivers.splice(0).map((receiver) => receiver.close()));
  await parts.end();
});

async function receiver(reply?: Reply): Promise<Receiver> {
  const started = await startReceiver(await (await trustedAuthority()).issue(["localhost"]), reply);
  receivers.push(started);
  return started;
}

test("pumps of several processes deliver many deliveries of few events once each, with their own payloads", async () => {
  const own = await startEngine(FEW_CONNECTIONS);
  onTestFinished(own.end);
  const [webhooks, events] = [200, 10];
  const { url, received } = await receiver();
  await queueFor(own, url, { webhooks, events });
  const runId = await freshRun(own.db);
  const engines = [own.engine, own.another(), own.another(), own.another()];
  const results = await Promise.all(engines.map((engine) => pump(engine, runId)));
  expect(results.reduce((sum, { delivered }) => sum + delivered, 0)).toBe(webhooks * events);
  expect(results.every(({ end }) => end === "done")).toBe(true);
  expect(received).toHaveLength(webhooks * events);
  for (let n = 1; n <= events; n += 1) {
    expect(received.filter(({ body }) => body === `{"N":${n}}`)).toHaveLength(webhooks);
  }
  const states = await rows(
    own.db,
    "select state, attempts, count(*)::int as n from all_deliveries group by 1, 2",
  );
  expect(states).toEqual([{ state: "delivered", attempts: 1, n: webhooks * events }]);
});

test("an event for more webhooks than one statement takes is fanned out by the pumps, and delivered to each once", async () => {
  const own = await startEngine(FEW_CONNECTIONS);
  onTestFinished(own.end);
  const { url, received } = await receiver();
  await queueFor(own, url, { webhooks: 2_100, events: 0 });
  await own.db("processes").insert({ process: 1, revision: 1n, live: 2_100 });
  const [published] = await publishEvents(own.db, [anEvent()]);
  expect(published).toMatchObject({ queued: 2_100 });
  const runId = await freshRun(own.db);
  const results = await Promise.all([own.engine, own.another()].map((engine) => pump(engine, runId)));
  expect(results.reduce((sum, { delivered }) => sum + delivered, 0)).toBe(2_100);
  expect(new Set(received.map(({ path }) => path)).size).toBe(2_100);
  expect(received).toHaveLength(2_100);
});

test("the many webhooks of a host that never answers hold up no other host's, however much waits for them", async () => {
  const silent = await receiver(() => undefined);
  const well = await receiver();
  await queueFor(parts, silent.url, { webhooks: 300, events: 20 });
  await queueFor(parts, well.url, { webhooks: 50, events: 20 });
  const stop = new AbortController();
  const pumped = pump(parts.engine, await freshRun(parts.db), stop.signal);
  await well.until((received) => received.length === 50 * 20);
  // The silent host's first request has not even come to its time-out.
  const [failed] = await rows<{ n: number }>(
    parts.db,
    "select count(*)::int as n from all_attempts where error is not null",
  );
  expect(failed).toEqual({ n: 0 });
  expect(silent.received.length).toBeGreaterThan(0);
  stop.abort();
  await silent.close();
  await pumped;
});

/** Leaves this thread no idle time, so that the engine's limit of requests in flight does not grow. @returns ends it */
function keepThreadBusy(): () => void {
  let isBusy = true;
  const turn = () => {
    for (const until = performance.now() + 20; performance.now() < until; );
    if (isBusy) setImmediate(turn);
  };
  setImmediate(turn);
  return () => {
    isBusy = false;
  };
}

test("in a busy process, slow receivers that have all requests in flight leave some to others before they answer", async () => {
  // Four requests to each at first: more than the process has in flight at first.
  const slow = await Promise.all(Array.from({ length: 20 }, () => receiver(() => undefined)));
  const well = await receiver();
  for (const { url } of slow) await queueFor(parts, url, { webhooks: 1, events: 20 });
  const stop = new AbortController();
  onTestFinished(keepThreadBusy());
  const pumped = parts.engine.pumps.run(await freshRun(parts.db), LINGERING, stop.signal);
  const sent = () => slow.reduce((sum, { received }) => sum + received.length, 0);
  await expect.poll(sent).toBeGreaterThanOrEqual(64);
  await queueFor(parts, well.url, { webhooks: 1, events: 20 });
  parts.engine.pumps.wake();
  await well.until((received) => received.length === 20);
  stop.abort();
  await Promise.all(slow.map(({ close }) => close()));
  await pumped;
});

/** Answers after so many milliseconds, and tells how many requests were in flight at once. */
function slowReply(ms: number, status: number): { reply: Reply; most: () => number } {
  let [inFlight, most] = [0, 0];
  const reply: Reply = async () => {
    inFlight += 1;
    most = Math.max(most, inFlight);
    await wait(ms);
    inFlight -= 1;
    return status;
  };
  return { reply, most: () => most };
}

test("a webhook that fails has few requests in flight, and takes nothing from the others", async () => {
  const { reply, most } = slowReply(5, 500);
  const failing = await receiver(reply);
  const well = await receiver();
  await queueFor(parts, failing.url, { webhooks: 1, events: 100 });
  await queueFor(parts, well.url, { webhooks: 10, events: 100 });
  expect(await pump(parts.engine, await freshRun(parts.db))).toMatchObject({
    sent: 1_100,
    delivered: 1_000,
    retrying: 100,
    end: "done",
  });
  expect(most()).toBeLessThanOrEqual(4);
  expect(failing.received).toHaveLength(100);
});

test("a webhook that answers after more than a second is healthy: its window grows with its responses", async () => {
  const { reply, most } = slowReply(1_200, 200);
  const slow = await receiver(reply);
  await queueFor(parts, slow.url, { webhooks: 1, events: 60 });
  expect(await pump(parts.engine, await freshRun(parts.db))).toMatchObject({ delivered: 60, retrying: 0 });
  expect(most()).toBeGreaterThan(8);
});

test("one response after more than a second among fast ones leaves its webhook as many requests in flight as before", async () => {
  // More than a webhook has at first; fewer than the process's limit at first.
  const [window, grown] = [50, 400];
  const held: (() => void)[] = [];
  let reply = async (): Promise<void> => {};
  const { url, received } = await receiver(async () => {
    await reply();
    return 200;
  });
  const own = await startEngine({ DELIVERY_MAX_PER_WEBHOOK: String(window), DELIVERY_TIMEOUT: "60s" });
  onTestFinished(own.end);
  await queueFor(own, url, { webhooks: 1, events: grown });
  const runId = await freshRun(own.db);
  expect(await pump(own.engine, runId)).toMatchObject({ delivered: grown });
  /** Queues as many deliveries for the same webhook. */
  const queueAgain = (deliveries: number) =>
    own.db.raw(
      `insert into queue (id, event_id, webhook_id)
        select new_delivery_id(id), id, (select id from webhooks) from events limit ?`,
      [deliveries],
    );
  await queueAgain(1);
  reply = () => wait(1_200);
  expect(await pump(own.engine, runId)).toMatchObject({ delivered: 1, retrying: 0 });
  await queueAgain(2 * window);
  reply = () => new Promise<void>((resolve) => held.push(resolve));
  const last = pump(own.engine, runId);
  await expect.poll(() => held.length).toBe(window);
  reply = async () => {};
  for (const answer of held) answer();
  expect(await last).toMatchObject({ delivered: 2 * window });
  expect(received).toHaveLength(grown + 1 + 2 * window);
});

/** An engine whose first claim gets its response when the test says so. */
async function startClaiming(): Promise<{
  own: EngineParts;
  claim: { started: Promise<void>; respond: () => void };
}> {
  const [started, responded] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  let isFirst = true;
  const wrap = (db: Db) =>
    intercepted(db, (sql, _bindings, query) => {
      if (!isFirst || !/^\s*with recursive waiting/.test(sql)) return undefined;
      isFirst = false;
      return query.then(async (response) => {
        started.resolve();
        await responded.promise;
        return response;
      });
    });
  const own = await startEngine({ DELIVERY_TIMEOUT: "60s" }, { wrap });
  onTestFinished(own.end);
  return { own, claim: { started: started.promise, respond: responded.resolve } };
}

test("the pump of a later run takes over what waits, and the earlier one ends with its last response", async () => {
  const held: (() => void)[] = [];
  let isHolding = true;
  const { url, received } = await receiver(async () => {
    if (isHolding) await new Promise<void>((resolve) => held.push(resolve));
    return 200;
  });
  await queueFor(parts, url, { webhooks: 1, events: 50 });
  const { pumps } = parts.engine;
  const earlier = pumps.run(await freshRun(parts.db), LINGERING, new AbortController().signal);
  await expect.poll(() => held.length).toBe(4);
  const later = pump(parts.engine, await freshRun(parts.db));
  isHolding = false;
  for (const answer of held) answer();
  expect(await earlier).toMatchObject({ sent: 4, delivered: 4, end: "superseded" });
  expect(await later).toMatchObject({ sent: 46, delivered: 46, end: "done" });
  expect(received).toHaveLength(50);
});

test("a delivery that a later pump took over and that fails is retried by the later run", async () => {
  const held: (() => void)[] = [];
  let isHolding = true;
  const { url } = await receiver(async () => {
    if (isHolding) await new Promise<void>((resolve) => held.push(resolve));
    return 500;
  });
  await queueFor(parts, url, { webhooks: 1, events: 8 });
  const { pumps } = parts.engine;
  const [earlierRun, laterRun] = [await freshRun(parts.db), await freshRun(parts.db)];
  const earlier = pumps.run(earlierRun, LINGERING, new AbortController().signal);
  await expect.poll(() => held.length).toBe(4);
  const later = pump(parts.engine, laterRun);
  isHolding = false;
  for (const answer of held) answer();
  expect(await earlier).toMatchObject({ retrying: 4, end: "superseded" });
  expect(await later).toMatchObject({ retrying: 4, end: "done" });
  const retries = await rows(
    parts.db,
    "select run_id as run, count(*)::int as n from retries group by 1 order by 1",
  );
  expect(retries).toEqual([
    { run: earlierRun, n: 4 },
    { run: laterRun, n: 4 },
  ]);
});

test("the pump of a later run takes over what an earlier one is claiming, which ends at once", async () => {
  const { own, claim } = await startClaiming();
  const { url, received } = await receiver(() => undefined);
  await queueFor(own, url, { webhooks: 1, events: 50 });
  const stop = new AbortController();
  const earlier = own.engine.pumps.run(await freshRun(own.db), LINGERING, stop.signal);
  await claim.started;
  const later = own.engine.pumps.run(await freshRun(own.db), LINGERING, stop.signal);
  claim.respond();
  // None of its requests has ended: the receiver is silent.
  expect(await earlier).toMatchObject({ sent: 0, end: "superseded" });
  await expect.poll(() => received.length).toBe(4);
  stop.abort();
  await Promise.all(receivers.splice(0).map(({ close }) => close()));
  expect(await later).toMatchObject({ sent: 4, end: "stopped" });
});

test("a pump that an earlier run starts again ends at once, and the later run's pump goes on", async () => {
  const { url, received } = await receiver();
  const { pumps } = parts.engine;
  const [earlierRun, laterRun] = [await freshRun(parts.db), await freshRun(parts.db)];
  const stop = new AbortController();
  const later = pumps.run(laterRun, LINGERING, stop.signal);
  expect(await pumps.run(earlierRun, LINGERING, AbortSignal.timeout(5_000))).toMatchObject({
    sent: 0,
    end: "superseded",
  });
  await queueFor(parts, url, { webhooks: 1, events: 3 });
  pumps.wake();
  await expect.poll(() => received.length).toBe(3);
  stop.abort();
  expect(await later).toMatchObject({ sent: 3, delivered: 3, end: "stopped" });
});

test("what an earlier pump is claiming is given back if the later one is stopped meanwhile", async () => {
  const { own, claim } = await startClaiming();
  const { url, received } = await receiver();
  await queueFor(own, url, { webhooks: 1, events: 50 });
  const signal = new AbortController().signal;
  const earlier = own.engine.pumps.run(await freshRun(own.db), LINGERING, signal);
  await claim.started;
  const stop = new AbortController();
  const later = own.engine.pumps.run(await freshRun(own.db), LINGERING, stop.signal);
  stop.abort();
  expect(await later).toMatchObject({ sent: 0, end: "stopped" });
  claim.respond();
  expect(await earlier).toMatchObject({ sent: 0, end: "superseded" });
  expect(received).toEqual([]);
  expect(await rows(own.db, "select from queue where claimed_by is not null")).toEqual([]);
});

test("a pump that is stopped records what is in flight and gives back the rest, which another one sends", async () => {
  let answer: () => void = () => {};
  const held = new Promise<void>((resolve) => {
    answer = resolve;
  });
  const { url, received } = await receiver(async () => {
    await held;
    return 200;
  });
  await queueFor(parts, url, { webhooks: 1, events: 50 });
  const stop = new AbortController();
  const pumped = parts.engine.pumps.run(await freshRun(parts.db), LINGERING, stop.signal);
  await expect.poll(() => received.length).toBe(4);
  stop.abort();
  const claimed = () => rows(parts.db, "select from queue where claimed_by is not null");
  await expect.poll(async () => (await claimed()).length).toBe(4);
  answer();
  expect(await pumped).toMatchObject({ sent: 4, delivered: 4, end: "stopped" });
  expect(await pump(parts.another(), await freshRun(parts.db))).toMatchObject({ delivered: 46, end: "done" });
  expect(received).toHaveLength(50);
});

test("a pump that lingers sends what is queued later, as soon as it is woken, and ends when its time is over", async () => {
  const { url, received } = await receiver();
  const { pumps } = parts.engine;
  const stop = new AbortController();
  const lingering = pumps.run(await freshRun(parts.db), LINGERING, stop.signal);
  for (const events of [1, 2, 3]) {
    const before = received.length;
    await queueFor(parts, `${url}/${events}`, { webhooks: 1, events });
    pumps.wake();
    await expect.poll(() => received.length).toBe(before + events);
  }
  stop.abort();
  expect(await lingering).toMatchObject({ delivered: 6, end: "stopped" });
  const short = pumps.run(
    await freshRun(parts.db),
    { lingers: true, forMs: 1 },
    new AbortController().signal,
  );
  expect(await short).toMatchObject({ sent: 0, end: "time" });
});

test("a pump that lingers finds what is queued later although nobody wakes it", async () => {
  let claims = 0;
  const wrap = (db: Db) =>
    observed(db, (sql) => {
      if (/^\s*with recursive waiting/.test(sql)) claims += 1;
    });
  const own = await startEngine({}, { wrap });
  onTestFinished(own.end);
  const { url, received } = await receiver();
  await queueFor(own, `${url}/first`, { webhooks: 1, events: 1 });
  const stop = new AbortController();
  const lingering = own.engine.pumps.run(await freshRun(own.db), LINGERING, stop.signal);
  await expect.poll(() => received.length).toBe(1);
  // By then, the notification of its new connection is handled: later claims are its own polls.
  const before = claims;
  await expect.poll(() => claims).toBeGreaterThan(before + 4);
  await queueFor(own, `${url}/later`, { webhooks: 1, events: 2 });
  await expect.poll(() => received.length).toBe(3);
  stop.abort();
  expect(await lingering).toMatchObject({ delivered: 3, end: "stopped" });
});
