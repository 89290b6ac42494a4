import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { afterEach, expect, test } from "vitest";
import { type Receiver, type Reply, startReceiver } from "../../demo/receiver.ts";
import { rows } from "../../src/db/database.ts";
import { assignGroups } from "../../src/db/queue/retry-groups.ts";
import { INITIAL_WINDOW } from "../../src/delivery/limits/windows.ts";
import { FAILING_MS } from "../../src/delivery/sender.ts";
import { trustedAuthority } from "../support/test-service.ts";
import { type EngineParts, freshRun, pump, queueFor, startEngine } from "./engine-parts.ts";

const [HEALTHY, EVENTS] = [8, 60];
/** The deliveries of each webhook that does not answer well. */
const BAD_EVENTS = 20;

const ends: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

/** An engine, and one host whose paths behave so: `/hang/1` never answers, and so on. */
async function start(behaviour: Reply): Promise<{ parts: EngineParts; host: Receiver }> {
  // Attempts to the path that hangs time out again and again meanwhile. A second retry is due after the test's end.
  const parts = await startEngine({
    DELIVERY_TIMEOUT: "1s",
    RETRY_INITIAL_DELAY: "10s",
    RETRY_BACKOFF_COEFFICIENT: "100",
  });
  const host = await startReceiver(await (await trustedAuthority()).issue(["localhost"]), behaviour);
  ends.push(parts.end, host.close);
  return { parts, host };
}

/** Hangs, closes the connection, answers 500 or answers 200, as the path says. */
const byPath: Reply = ({ path }, response) => {
  if (path.startsWith("/hang")) return undefined;
  if (path.startsWith("/fail")) return 500;
  if (path.startsWith("/close")) response.socket?.destroy();
  return path.startsWith("/close") ? undefined : 200;
};

const queueHanging = (parts: EngineParts, { url }: Receiver) =>
  queueFor(parts, `${url}/hang`, { webhooks: 1, events: BAD_EVENTS });

async function queueOthers(parts: EngineParts, { url }: Receiver): Promise<void> {
  for (const path of ["close", "fail"])
    await queueFor(parts, `${url}/${path}`, { webhooks: 1, events: BAD_EVENTS });
  await queueFor(parts, `${url}/well`, { webhooks: HEALTHY, events: EVENTS });
}

/** The recorded attempts with this number, by the first part of their path. */
async function attempts({ db }: EngineParts, number: number): Promise<Record<string, number>> {
  const found = await rows<{ path: string; n: number }>(
    db,
    `select substring(w.url from '//[^/]+/([a-z]+)') as path, count(*)::int as n from all_attempts a
        join all_deliveries d on d.id = a.delivery_id join webhooks w on w.id = d.webhook_id
      where a.number = :number::int group by 1`,
    { number },
  );
  return Object.fromEntries(found.map(({ path, n }) => [path, n]));
}

/** What the healthy, failing and closing paths have when they have all. */
const ALL = { well: HEALTHY * EVENTS, fail: BAD_EVENTS, close: BAD_EVENTS };
const PATIENT = { timeout: 50_000 };
const LINGERING = { lingers: true, forMs: 600_000 };

/** The attempts with this number to the path that hangs that have timed out. */
const timedOut = async (parts: EngineParts, number: number) => (await attempts(parts, number)).hang ?? 0;

test("of one host, a path that hangs, one that closes the connection and one that fails hold up neither eight healthy ones nor each other", async () => {
  const { parts, host } = await start(byPath);
  const stop = new AbortController();
  await queueHanging(parts, host);
  const pumped = parts.engine.pumps.run(await freshRun(parts.db), LINGERING, stop.signal);
  await expect.poll(() => timedOut(parts, 1)).toBeGreaterThan(0);
  await queueOthers(parts, host);
  parts.engine.pumps.wake();
  await expect.poll(() => attempts(parts, 1), PATIENT).toMatchObject(ALL);
  // With one POST for each time-out of the path that hangs, there would have been hundreds of these.
  expect(await timedOut(parts, 1)).toBeLessThan(BAD_EVENTS);
  stop.abort();
  await pumped;
});

test("of one host, retries of a path that hangs, one that closes the connection and one that fails hold up no other retries", async () => {
  const { parts, host } = await start((request, response) =>
    request.attempt === 1 ? 503 : byPath(request, response),
  );
  await queueHanging(parts, host);
  await queueOthers(parts, host);
  const runId = await freshRun(parts.db);
  expect(await pump(parts.engine, runId)).toMatchObject({ retrying: HEALTHY * EVENTS + 3 * BAD_EVENTS });
  await parts.db.raw("update retries set due = now()");
  const [hanging, ...others] = (await assignGroups(parts.db, runId)).sort((a, b) =>
    a.webhookId < b.webhookId ? -1 : 1,
  );
  expect(others).toHaveLength(HEALTHY + 2);
  const stop = new AbortController();
  const pass = { horizonMs: 5_000, forMs: 600_000 };
  const retry = ({ group }: { group: number }) =>
    parts.engine.retries.run({ runId, group }, pass, stop.signal);
  const passes = [retry(hanging as { group: number })];
  await expect.poll(() => timedOut(parts, 2)).toBeGreaterThan(0);
  passes.push(...others.map(retry));
  await expect.poll(() => attempts(parts, 2), PATIENT).toMatchObject(ALL);
  expect(await timedOut(parts, 2)).toBeLessThan(BAD_EVENTS);
  stop.abort();
  await Promise.all(passes);
});

test("attempts to a webhook that fails at once pause in between, and those to others of its host do not", async () => {
  // So many that they still go on when the others have all been sent, also on a busy machine.
  const failing = 5 * BAD_EVENTS;
  const times: number[] = [];
  const { parts, host } = await start(({ path }) => {
    if (path.startsWith("/well")) return 200;
    times.push(performance.now());
    return 503;
  });
  await queueFor(parts, `${host.url}/fail`, { webhooks: 1, events: failing });
  await queueFor(parts, `${host.url}/well`, { webhooks: 1, events: EVENTS });
  const pumped = pump(parts.engine, await freshRun(parts.db));
  await host.until((received) => received.filter(({ path }) => path.startsWith("/well")).length === EVENTS);
  expect(times.length).toBeLessThan(failing);
  expect(await pumped).toMatchObject({ delivered: EVENTS, retrying: failing });
  // The first ones are in flight together.
  const alone = times.slice(INITIAL_WINDOW);
  const pauses = alone.slice(1).map((time, n) => time - (alone[n] as number));
  expect(Math.min(...pauses)).toBeGreaterThan(FAILING_MS - 1);
});

test("attempts to a host that refuses connections pause in between, whichever of its webhooks they are for", async () => {
  const parts = await startEngine({ RETRY_INITIAL_DELAY: "10s" });
  ends.push(parts.end);
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  await queueFor(parts, `https://localhost:${port}`, { webhooks: 5, events: BAD_EVENTS });
  const started = performance.now();
  expect(await pump(parts.engine, await freshRun(parts.db))).toMatchObject({ retrying: 5 * BAD_EVENTS });
  // The first ones are in flight together.
  const alone = 5 * BAD_EVENTS - INITIAL_WINDOW;
  expect(performance.now() - started).toBeGreaterThan((alone - 1) * (FAILING_MS - 1));
});
