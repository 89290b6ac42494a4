import { expect, test } from "vitest";
import type { DeliveryEngine } from "../../src/delivery/engine.ts";
import { aReceiver, heldReplies } from "../support/receivers.ts";
import { until } from "../support/wait.ts";
import {
  claimed,
  type EngineOptions,
  type EngineParts,
  type Fault,
  FIRST_CLAIM,
  faulty,
  freshRun,
  passDue,
  pump,
  queueFor,
  RELEASE,
  RETRY_CLAIM,
  states,
  useEngine,
} from "./engine-parts.ts";

const DELIVERIES = 6;
/** Of a webhook that has at most as many claimed as may be released for want of room. */
const OF_ONE = 12;
const WEBHOOKS = /from unnest\(.*\) k\(id, version\)/;
const CONTENTS = /^select id, user_id as "userId", process, test, traceparent, recipients/;

/** Faults to come for the first engine; others on the same database have none. Each befalls the next statement that it fits. */
function faultsToCome(): { faults: { next: [RegExp, Fault][] }; options: EngineOptions } {
  const faults: { next: [RegExp, Fault][] } = { next: [] };
  const nextFault = (sql: string) => {
    const place = faults.next.findIndex(([statement]) => statement.test(sql));
    return place === -1 ? undefined : faults.next.splice(place, 1)[0]?.[1];
  };
  return { faults, options: { wrap: (db, engine) => (engine === 0 ? faulty(db, nextFault) : db) } };
}

/** Pumps as Temporal does, after errors too, until the states of all deliveries are these. */
async function pumpUntil(parts: EngineParts, runId: number, wanted: Record<string, number>): Promise<void> {
  await until(async () => {
    await pump(parts.engine, runId).catch(() => {});
    return JSON.stringify(await states(parts)) === JSON.stringify(wanted);
  });
}

const LOST: [RegExp, Fault] = [FIRST_CLAIM, "answer lost"];
const WEBHOOKS_REFUSED: [RegExp, Fault] = [WEBHOOKS, "refused"];
const CONTENTS_REFUSED: [RegExp, Fault] = [CONTENTS, "refused"];

test.each<[string, [RegExp, Fault][]]>([
  ["the claim's answer is lost", [LOST]],
  ["the webhooks of what was claimed cannot be read", [WEBHOOKS_REFUSED]],
  ["the events of what was claimed cannot be read", [CONTENTS_REFUSED]],
  ["many claims fail", [LOST, [FIRST_CLAIM, "refused"], WEBHOOKS_REFUSED, CONTENTS_REFUSED, LOST]],
])("each delivery is sent, and once, when %s", async (_what, next) => {
  const { faults, options } = faultsToCome();
  const parts = await useEngine({}, options);
  const { url, received } = await aReceiver();
  await queueFor(parts, url, { webhooks: 3, events: DELIVERIES / 3 });
  faults.next = [...next];
  await pumpUntil(parts, await freshRun(parts.db), { "delivered 1": DELIVERIES });
  if (next.length === 1) expect(faults.next).toEqual([]);
  expect(received).toHaveLength(DELIVERIES);
});

test("each delivery is sent, and once, when the worker claims again what it has released with a lost answer", async () => {
  const { faults, options } = faultsToCome();
  const parts = await useEngine({}, options);
  const held = heldReplies();
  const { url, received } = await aReceiver(held.reply);
  await queueFor(parts, url, { webhooks: 1, events: OF_ONE });
  const runId = await freshRun(parts.db);
  const stop = new AbortController();
  const stopped = pump(parts.engine, runId, stop.signal);
  await until(() => held.waiting > 0);
  faults.next = [[RELEASE, "answer lost"]];
  stop.abort();
  await until(async () => (await claimed(parts)) < OF_ONE);
  const again = pump(parts.engine, runId);
  await until(async () => (await claimed(parts)) === OF_ONE);
  expect(faults.next).toEqual([]);
  held.answer();
  await Promise.all([stopped, again, pump(parts.another(), runId)]);
  expect(await states(parts)).toEqual({ "delivered 1": OF_ONE });
  expect(received).toHaveLength(OF_ONE);
});

test.each([
  ["pump", FIRST_CLAIM],
  ["retry pass", RETRY_CLAIM],
])("a %s whose process ends amid a claim frees what it claimed", async (what, statement) => {
  const isRetry = what === "retry pass";
  const stop = new AbortController();
  const arm = { isArmed: false };
  const atClaim = (sql: string): Fault | undefined => {
    if (!arm.isArmed || stop.signal.aborted || !statement.test(sql)) return undefined;
    stop.abort();
    return "answer lost";
  };
  const wrap: EngineOptions["wrap"] = (db, engine) => (engine === 0 ? faulty(db, atClaim) : db);
  const parts = await useEngine({ RETRY_INITIAL_DELAY: "1m" }, { wrap, stopping: stop.signal });
  const { db, engine } = parts;
  const { url, received } = await aReceiver(({ attempt }) => (isRetry && attempt === 1 ? 500 : 200));
  await queueFor(parts, url, { webhooks: 1, events: DELIVERIES });
  const runId = await freshRun(db);
  if (isRetry) await pump(engine, runId);
  const run = (of: DeliveryEngine, signal?: AbortSignal) =>
    isRetry ? passDue(db, of, runId, signal) : pump(of, runId, signal);
  arm.isArmed = true;
  const ended = isRetry ? { complete: false } : { end: "stopped" };
  expect(await run(engine, stop.signal)).toMatchObject({ sent: 0, ...ended });
  // Before the lease expires.
  await until(async () => (await db("workers")).length === 0);
  expect(await run(parts.another())).toMatchObject({ delivered: DELIVERIES });
  expect(received).toHaveLength(isRetry ? 2 * DELIVERIES : DELIVERIES);
});

test("an attempt that cannot be recorded holds up no other, and its delivery is tried again until it is given up", async () => {
  const parts = await useEngine({ HEARTBEAT_TIMEOUT: "2s" });
  const { db } = parts;
  const { url, received } = await aReceiver();
  await queueFor(parts, `${url}/well`, { webhooks: 2, events: 2 });
  const [poisoned] = await queueFor(parts, `${url}/poison`, { webhooks: 1, events: 1 });
  await db.raw(
    `alter table deliveries add constraint poison check (webhook_id <> ${poisoned} or outcome <> 'delivered')`,
  );
  try {
    await pumpUntil(parts, await freshRun(db), { "delivered 1": 4, "failed 0 interrupted": 1 });
  } finally {
    await db.raw("alter table deliveries drop constraint poison");
  }
  expect(received.filter(({ path }) => path.startsWith("/well"))).toHaveLength(4);
});

test("a worker whose result matches no claim, though it lives, tries the delivery again", async () => {
  const parts = await useEngine();
  const { url, received } = await aReceiver(async ({ attempt }) => {
    if (attempt === 1) await parts.db.raw("update queue set attempts = 1");
    return 200;
  });
  await queueFor(parts, url, { webhooks: 1, events: 1 });
  await pumpUntil(parts, await freshRun(parts.db), { "delivered 2": 1 });
  expect(received).toHaveLength(2);
});
