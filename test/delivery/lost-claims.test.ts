import { expect, test } from "vitest";
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
const CONTENTS = /^select id, user_id, process, test, traceparent, recipients/;

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

const CASES: [string, RegExp, Fault][] = [
  ["the claim's answer is lost", FIRST_CLAIM, "answer lost"],
  ["the claim does not come through", FIRST_CLAIM, "refused"],
  ["the webhooks of what was claimed cannot be read", WEBHOOKS, "refused"],
  ["the events of what was claimed cannot be read", CONTENTS, "refused"],
];
const faultOf = ([, statement, fault]: (typeof CASES)[number]): [RegExp, Fault] => [statement, fault];

test.each<[string, [RegExp, Fault][]]>([
  ...CASES.map((each): [string, [RegExp, Fault][]] => [each[0], [faultOf(each)]]),
  ["many claims fail, in one way and another", [...CASES, ...CASES].map(faultOf)],
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

/** Has the first engine stop with the answer to its next claim, which it gets or loses. */
function stopping(claim: RegExp, isLost: boolean) {
  const stop = new AbortController();
  const arm = { isArmed: false };
  const atClaim = (sql: string): Fault | undefined => {
    if (!arm.isArmed || stop.signal.aborted || !claim.test(sql)) return undefined;
    stop.abort();
    return isLost ? "answer lost" : undefined;
  };
  const options: EngineOptions = {
    ...(isLost ? { stopping: stop.signal } : {}),
    wrap: (db, engine) => (engine === 0 ? faulty(db, atClaim) : db),
  };
  return { stop, arm, options };
}

test.each([
  ["pump", "is told to stop gives back", false],
  ["pump", "is lost with its process ends without an error and frees", true],
  ["retry pass", "is told to stop gives back", false],
  ["retry pass", "is lost with its process ends without an error and frees", true],
])(
  "a %s whose claim is answered as it %s what it had claimed, and another worker sends it",
  async (what, _does, isLost) => {
    const isRetry = what === "retry pass";
    const { stop, arm, options } = stopping(isRetry ? RETRY_CLAIM : FIRST_CLAIM, isLost);
    const parts = await useEngine({ RETRY_INITIAL_DELAY: "1m" }, options);
    const { db, engine } = parts;
    const { url, received } = await aReceiver(({ attempt }) => (isRetry && attempt === 1 ? 500 : 200));
    await queueFor(parts, url, { webhooks: 1, events: DELIVERIES });
    const runId = await freshRun(db);
    if (isRetry) await pump(engine, runId);
    arm.isArmed = true;
    const { sent, ...result } = await (isRetry
      ? passDue(db, engine, runId, stop.signal)
      : pump(engine, runId, stop.signal));
    expect(result).toMatchObject(isRetry ? { complete: false } : { end: "stopped" });
    if (isLost) {
      expect(sent).toBe(0);
      // Before the lease expires.
      await until(async () => (await db("workers")).length === 0);
    } else {
      expect(await claimed(parts)).toBe(0);
    }
    const other = parts.another();
    const rest = isRetry ? passDue(db, other, runId) : pump(other, runId);
    expect(await rest).toMatchObject({ delivered: DELIVERIES - sent });
    expect(received).toHaveLength(isRetry ? 2 * DELIVERIES : DELIVERIES);
  },
);

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
