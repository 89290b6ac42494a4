import { setTimeout as wait } from "node:timers/promises";
import { expect, type TestContext, test } from "vitest";
import { type Receiver, type Reply, startReceiver } from "../../demo/receiver.ts";
import { rows } from "../../src/db/database.ts";
import { adoptRetries, assignGroups } from "../../src/db/queue/retry-groups.ts";
import { trustedAuthority } from "../support/test-service.ts";
import {
  type EngineOptions,
  type EngineParts,
  freshRun,
  observed,
  pump,
  queueFor,
  startEngine,
} from "./engine-parts.ts";

// The tests run at the same time, since most of them wait for retries. Each has its own engine, database and receivers.
/** The retry after the next one comes much later than any test ends, and than any pass looks ahead. */
const SETTINGS = { RETRY_INITIAL_DELAY: "500ms", RETRY_BACKOFF_COEFFICIENT: "100", DELIVERY_TIMEOUT: "60s" };
const PASS = { horizonMs: 30_000, forMs: 60_000 };
const never = () => new AbortController().signal;

async function start(
  { onTestFinished }: TestContext,
  settings: Record<string, string> = SETTINGS,
  options: EngineOptions = {},
): Promise<EngineParts> {
  const parts = await startEngine(settings, options);
  onTestFinished(parts.end);
  return parts;
}

async function receiver(
  { onTestFinished }: TestContext,
  reply: Reply,
  hosts = ["localhost"],
): Promise<Receiver> {
  const started = await startReceiver(await (await trustedAuthority()).issue(hosts), reply);
  onTestFinished(started.close);
  return started;
}

/** A run in which every delivery has failed once; its webhooks are in one group. */
async function failedOnce(parts: EngineParts): Promise<number> {
  const runId = await freshRun(parts.db);
  await pump(parts.engine, runId);
  await assignGroups(parts.db, runId);
  await parts.db("run_groups").update({ group_number: 1 });
  return runId;
}

const states = ({ db }: EngineParts) =>
  rows(
    db,
    "select state, attempts, reason, count(*)::int as n from all_deliveries group by 1, 2, 3 order by 1",
  );

test.concurrent("a pass waits for the retries that fall due within its horizon, and sends each once", async (context) => {
  const parts = await start(context);
  const { url, received } = await receiver(context, ({ attempt }) => (attempt === 1 ? 500 : 200));
  await queueFor(parts, url, { webhooks: 3, events: 20 });
  const runId = await failedOnce(parts);
  expect(await parts.engine.retries.run({ runId, group: 1 }, PASS, never())).toMatchObject({
    sent: 60,
    delivered: 60,
    status: { open: 0 },
    complete: true,
  });
  expect(received).toHaveLength(120);
});

test.concurrent("a pass leaves what falls due after its horizon, and tells when that is", async (context) => {
  const parts = await start(context, { RETRY_INITIAL_DELAY: "1h" });
  const { url, received } = await receiver(context, () => 500);
  await queueFor(parts, url, { webhooks: 1, events: 5 });
  const runId = await failedOnce(parts);
  const result = await parts.engine.retries.run({ runId, group: 1 }, PASS, never());
  expect(result).toMatchObject({ sent: 0, status: { open: 5 }, lastFailure: null, complete: true });
  expect(result.status.delayMs).toBeGreaterThan(3_000_000);
  expect(received).toHaveLength(5);
});

test.concurrent("a pass tells the last failure and what is left", async (context) => {
  const parts = await start(context);
  const { url, port } = await receiver(context, () => 503);
  await queueFor(parts, url, { webhooks: 1, events: 5 });
  const runId = await failedOnce(parts);
  expect(await parts.engine.retries.run({ runId, group: 1 }, PASS, never())).toMatchObject({
    sent: 5,
    retrying: 5,
    lastFailure: `503 from localhost:${port}`,
    status: { open: 5 },
  });
  expect(await states(parts)).toEqual([{ state: "retrying", attempts: 2, reason: null, n: 5 }]);
});

test.concurrent("a webhook that asks for an hour by Retry-After delays its own retries only, not the others of its group", async (context) => {
  const parts = await start(context);
  const { url } = await receiver(context, ({ path, attempt }, response) => {
    if (attempt > 1) return 200;
    response.writeHead(503, path === "/1" ? { "retry-after": "3600" } : {}).end();
    return undefined;
  });
  await queueFor(parts, url, { webhooks: 4, events: 10 });
  const runId = await failedOnce(parts);
  const result = await parts.engine.retries.run({ runId, group: 1 }, PASS, never());
  expect(result).toMatchObject({ sent: 30, delivered: 30, status: { open: 10 }, complete: true });
  expect(result.status.delayMs).toBeGreaterThan(3_000_000);
});

test.concurrent("retries of a webhook that is paused when they are due leave their run, so that another run makes them once it is resumed", async (context) => {
  const parts = await start(context);
  const { db } = parts;
  const { url } = await receiver(context, ({ attempt }) => (attempt === 1 ? 500 : 200));
  await queueFor(parts, url, { webhooks: 2, events: 1 });
  const runId = await failedOnce(parts);
  const [paused] = await rows<{ id: bigint }>(db, "select max(id) as id from webhooks");
  const held = { id: String(paused?.id) };
  await db("webhooks").where(held).update({ paused: new Date() });
  expect(await parts.engine.retries.run({ runId, group: 1 }, PASS, never())).toMatchObject({
    delivered: 1,
    status: { open: 0 },
  });
  await db("webhooks").where(held).update({ paused: null });
  const later = await freshRun(db);
  expect(await adoptRetries(db, later)).toBe(1);
  await assignGroups(db, later);
  expect(await parts.engine.retries.run({ runId: later, group: 1 }, PASS, never())).toMatchObject({
    delivered: 1,
  });
});

test.concurrent("a webhook that hangs does not delay the others of its host and group", async (context) => {
  const parts = await start(context);
  const shared = await receiver(context, ({ path, attempt }) => {
    if (attempt === 1) return 500;
    return path === "/1" ? undefined : 200;
  });
  await queueFor(parts, shared.url, { webhooks: 8, events: 20 });
  const runId = await failedOnce(parts);
  const stop = new AbortController();
  const passed = parts.engine.retries.run({ runId, group: 1 }, PASS, stop.signal);
  await context.expect
    .poll(() => states(parts))
    .toContainEqual({ state: "delivered", attempts: 2, reason: null, n: 140 });
  stop.abort();
  await shared.close();
  expect(await passed).toMatchObject({ delivered: 140, complete: false });
});

test.concurrent("seventy webhooks on as many hosts that hang do not delay another one of their group", async (context) => {
  const hosts = Array.from({ length: 70 }, (_, n) => `host-${n + 1}.example`);
  // All hosts are this machine.
  const resolver = { resolve: async () => [{ address: "127.0.0.1", family: 4 }], close() {} };
  const parts = await start(context, SETTINGS, { resolver });
  const hanging = await receiver(context, ({ attempt }) => (attempt === 1 ? 500 : undefined), hosts);
  const well = await receiver(context, ({ attempt }) => (attempt === 1 ? 500 : 200));
  await queueFor(parts, hanging.url, { webhooks: hosts.length, events: 3 });
  await parts.db.raw(
    `update webhooks set target_url = replace(target_url, 'localhost', 'host-' || id || '.example')`,
  );
  await queueFor(parts, well.url, { webhooks: 1, events: 50 });
  const runId = await failedOnce(parts);
  const stop = new AbortController();
  const passed = parts.engine.retries.run({ runId, group: 1 }, PASS, stop.signal);
  await well.until((received) => received.length === 100);
  stop.abort();
  await hanging.close();
  expect(await passed).toMatchObject({ delivered: 50, complete: false });
});

/** The statements of passes, in order. A status is answered after a while. */
function statementsOfPasses(): { statements: string[]; options: EngineOptions } {
  const statements: string[] = [];
  const wrap: EngineOptions["wrap"] = (db) =>
    observed(db, async (sql) => {
      if (/^\s*with members as/.test(sql)) statements.push("claim");
      if (!sql.includes("as q(run_id, group_number, place)")) return;
      statements.push("status");
      await wait(300);
    });
  return { statements, options: { wrap } };
}

test.concurrent("a pass that waits for a rate limit does not count its retries", async (context) => {
  const { statements, options } = statementsOfPasses();
  const parts = await start(context, SETTINGS, options);
  const { url } = await receiver(context, () => 500);
  await queueFor(parts, url, { webhooks: 1, events: 20 });
  const runId = await failedOnce(parts);
  await parts.db.raw("update retries set due = now()");
  // No token for an hour.
  await parts.db.raw("update webhooks set rate_limit = 1, rate_tokens = -3600, rate_at = now()");
  const stop = new AbortController();
  const passed = parts.engine.retries.run({ runId, group: 1 }, PASS, stop.signal);
  await context.expect.poll(() => statements.length).toBeGreaterThanOrEqual(4);
  expect(new Set(statements)).toEqual(new Set(["claim"]));
  stop.abort();
  expect(await passed).toMatchObject({ sent: 0, status: { open: 20 } });
});

test.concurrent("a pass whose webhook hangs in another run counts its retries rarely", async (context) => {
  const { statements, options } = statementsOfPasses();
  const parts = await start(context, SETTINGS, options);
  const hanging = await receiver(context, ({ attempt }) => (attempt === 1 ? 500 : undefined));
  await queueFor(parts, hanging.url, { webhooks: 1, events: 40 });
  const runId = await failedOnce(parts);
  const otherRun = await freshRun(parts.db);
  await parts.db.raw("update retries set due = now()");
  await parts.db.raw("insert into run_groups select ?, webhook_id, 1 from run_groups", [otherRun]);
  await parts.db.raw("update retries set run_id = ? where id in (select id from retries limit 20)", [
    otherRun,
  ]);
  const stop = new AbortController();
  const holding = parts.engine.retries.run({ runId, group: 1 }, PASS, stop.signal);
  await context.expect.poll(() => hanging.received.length).toBeGreaterThan(40);
  const passed = parts.engine.retries.run({ runId: otherRun, group: 1 }, PASS, stop.signal);
  const afterStatus = () => statements.slice(statements.indexOf("status") + 1);
  await context.expect.poll(() => statements).toContain("status");
  // Two of each pass.
  await context.expect.poll(() => afterStatus().length).toBeGreaterThanOrEqual(4);
  expect(afterStatus().slice(0, 4)).toEqual(["claim", "claim", "claim", "claim"]);
  stop.abort();
  await hanging.close();
  await Promise.all([holding, passed]);
});

test.concurrent("a pass that is stopped records what is in flight and gives back the rest, which another worker sends", async (context) => {
  const parts = await start(context);
  let answer: () => void = () => {};
  const held = new Promise<void>((resolve) => {
    answer = resolve;
  });
  const { url, received } = await receiver(context, async ({ attempt }) => {
    if (attempt === 1) return 500;
    await held;
    return 200;
  });
  await queueFor(parts, url, { webhooks: 1, events: 30 });
  const runId = await failedOnce(parts);
  const stop = new AbortController();
  const stopped = parts.engine.retries.run({ runId, group: 1 }, PASS, stop.signal);
  await context.expect.poll(() => received.length).toBe(31);
  stop.abort();
  answer();
  expect(await stopped).toMatchObject({ sent: 1, delivered: 1, status: { open: 29 }, complete: false });
  const other = await parts.another().retries.run({ runId, group: 1 }, PASS, never());
  expect(other).toMatchObject({ sent: 29, delivered: 29, status: { open: 0 }, complete: true });
  expect(received).toHaveLength(60);
});

test.concurrent("of two passes over one group, as when a worker that was taken for dead is not, each delivery is tried by one, and none fails for it", async (context) => {
  const deliveries = 100;
  const parts = await start(context);
  const failing = await receiver(context, async ({ attempt }) => {
    if (attempt > 1) await wait(5);
    return 500;
  });
  await queueFor(parts, failing.url, { webhooks: 1, events: deliveries });
  const runId = await failedOnce(parts);
  // Shorter than a lease, for which a pass would wait: the other worker could die and leave its claims.
  const short = { ...PASS, horizonMs: 2_000 };
  const [one, other] = await Promise.all(
    [parts.engine, parts.another()].map(({ retries }) => retries.run({ runId, group: 1 }, short, never())),
  );
  expect((one?.sent ?? 0) + (other?.sent ?? 0)).toBe(deliveries);
  expect(failing.received).toHaveLength(2 * deliveries);
  expect(await states(parts)).toEqual([{ state: "retrying", attempts: 2, reason: null, n: deliveries }]);
});

test.concurrent("due retries are made while first attempts go on at full speed, long before these end", async (context) => {
  const [retries, webhooks, events] = [200, 10, 2_000];
  const parts = await start(context);
  const recovering = await receiver(context, ({ attempt }) => (attempt === 1 ? 500 : 200));
  const well = await receiver(context, () => 200);
  await queueFor(parts, recovering.url, { webhooks: 1, events: retries });
  const runId = await failedOnce(parts);
  await parts.db.raw("update retries set due = now()");
  await queueFor(parts, well.url, { webhooks, events });
  const stop = new AbortController();
  const pumped = pump(parts.engine, await freshRun(parts.db), stop.signal);
  await well.until((received) => received.length > 1_000);
  const pass = { ...PASS, horizonMs: 1_000 };
  const result = await parts.engine.retries.run({ runId, group: 1 }, pass, never());
  expect(well.received.length).toBeLessThan((webhooks * events) / 2);
  expect(result).toMatchObject({ sent: retries, delivered: retries, status: { open: 0 } });
  stop.abort();
  expect(await pumped).toMatchObject({ end: "stopped" });
});

test.concurrent("the retries of a webhook that always fails keep up with its first attempts, which never end", async (context) => {
  const parts = await start(context, { RETRY_INITIAL_DELAY: "1s", RETRY_BACKOFF_COEFFICIENT: "1" });
  const failing = await receiver(context, () => 503);
  await queueFor(parts, failing.url, { webhooks: 1, events: 100 });
  const runId = await failedOnce(parts);
  await queueFor(parts, `${failing.url}/more`, { webhooks: 1, events: 4_000 });
  await parts.db.raw("update queue set webhook_id = (select webhook_id from run_groups)");
  const stop = new AbortController();
  const pumped = pump(parts.engine, runId, stop.signal);
  const pass = { ...PASS, horizonMs: 5_000 };
  // A pass ends when all due retries are made.
  const passes = async () => {
    while (!stop.signal.aborted) await parts.engine.retries.run({ runId, group: 1 }, pass, stop.signal);
  };
  const passed = passes();
  const retries = () => failing.received.filter(({ attempt }) => attempt > 1).length;
  await context.expect.poll(retries, { timeout: 50_000 }).toBeGreaterThan(200);
  // Each delivery has three retries. Before the first ones are due, only first attempts are made.
  expect(failing.received.length - retries()).toBeLessThan(2_000);
  stop.abort();
  await Promise.all([pumped, passed]);
});
