import { expect, type TestContext, test } from "vitest";
import { type Receiver, type Reply, startReceiver } from "../../demo/receiver.ts";
import { rows } from "../../src/db/database.ts";
import type { Resolver } from "../../src/delivery/http/name-resolver.ts";
import { trustedAuthority } from "../support/test-service.ts";
import { type EngineParts, freshRun, queueFor, startEngine } from "./engine-parts.ts";

const TIMEOUT_MS = 1_500;
/** More deliveries than fit into a worker's payload memory. */
const [EVENTS, PAYLOAD_BYTES] = [1_000, 5_000];
/** The deliveries of the healthy webhook. */
const OTHERS = 20;

async function startReceiving({ onTestFinished }: TestContext, reply?: Reply): Promise<Receiver> {
  const receiver = await startReceiver(await (await trustedAuthority()).issue(["localhost"]), reply);
  onTestFinished(receiver.close);
  return receiver;
}

/** Looks up names under `.dead.example` as an address at which nothing answers, and others as this machine. */
const resolver: Resolver = {
  resolve: (host) =>
    host.endsWith("dead.example")
      ? new Promise(() => {})
      : Promise.resolve([{ address: "127.0.0.1", family: 4 }]),
  close() {},
};

async function start({ onTestFinished }: TestContext): Promise<EngineParts> {
  const parts = await startEngine(
    {
      DELIVERY_MEMORY: "1MiB",
      DELIVERY_TIMEOUT: `${TIMEOUT_MS / 1_000}s`,
      RETRY_INITIAL_DELAY: "1h",
    },
    { resolver },
  );
  onTestFinished(parts.end);
  return parts;
}

const claimedOf = async ({ db }: EngineParts, path: string) =>
  (
    await rows(
      db,
      "select from queue q join webhooks w on w.id = q.webhook_id where claimed_by is not null and url like :url",
      {
        url: `%${path}%`,
      },
    )
  ).length;

const hanging: [string, (silent: Receiver) => string, number][] = [
  ["webhook", ({ url }) => `${url}/hanging`, 1],
  ["host", () => "https://dead.example/hanging", 20],
];
test.concurrent.for(hanging)(
  "a %s that hangs soon leaves a worker's payload memory to others, and few of its deliveries stay claimed",
  async ([_what, urlOf, webhooks], context) => {
    const parts = await start(context);
    const silent = await startReceiving(context, () => undefined);
    const healthy = await startReceiving(context);
    await queueFor(parts, urlOf(silent), { webhooks, events: EVENTS / webhooks });
    await parts.db.raw("update events set payload = ?", [JSON.stringify({ N: "1".repeat(PAYLOAD_BYTES) })]);
    const stop = new AbortController();
    const { pumps } = parts.engine;
    const pumped = pumps.run(await freshRun(parts.db), { lingers: true, forMs: 600_000 }, stop.signal);
    await context.expect.poll(() => claimedOf(parts, "hanging")).toBeGreaterThan(100);
    await queueFor(parts, `${healthy.url}/healthy`, { webhooks: 1, events: OTHERS });
    const published = Date.now();
    pumps.wake();
    await context.expect.poll(() => healthy.received.length, { timeout: 10 * TIMEOUT_MS }).toBe(OTHERS);
    expect(Date.now() - published).toBeLessThan(2 * TIMEOUT_MS);
    // Those released are not claimed again as long as some of them are queued.
    await context.expect.poll(() => claimedOf(parts, "hanging")).toBeLessThanOrEqual(10);
    const failed = "select count(*)::int as n from all_attempts where error is not null";
    const [before] = await rows<{ n: number }>(parts.db, failed);
    while ((await rows<{ n: number }>(parts.db, failed))[0]?.n === before?.n)
      expect(await claimedOf(parts, "hanging")).toBeLessThanOrEqual(10);
    stop.abort();
    await silent.close();
    await pumped;
    // Releases count neither as attempts nor as claims without a result.
    expect(await rows(parts.db, "select distinct claims, attempts from queue")).toEqual([
      { claims: 0, attempts: 0 },
    ]);
  },
);

test.concurrent("a webhook that hung gets all of its deliveries once it responds again", async (context) => {
  let isSilent = true;
  const parts = await start(context);
  const receiver = await startReceiving(context, () => (isSilent ? undefined : 200));
  await queueFor(parts, receiver.url, { webhooks: 1, events: EVENTS });
  const stop = new AbortController();
  const run = parts.engine.pumps.run(
    await freshRun(parts.db),
    { lingers: true, forMs: 600_000 },
    stop.signal,
  );
  const claimed = () => rows(parts.db, "select from queue where claimed_by is not null");
  await context.expect.poll(async () => (await claimed()).length).toBeGreaterThan(100);
  await context.expect
    .poll(async () => (await claimed()).length, { timeout: 4 * TIMEOUT_MS })
    .toBeLessThan(10);
  isSilent = false;
  // On a busy machine, some may time out before they reach the receiver.
  await context.expect.poll(() => rows(parts.db, "select from queue"), { timeout: 40_000 }).toEqual([]);
  stop.abort();
  const { delivered, retrying } = await run;
  expect(delivered + retrying).toBe(EVENTS);
  expect(delivered).toBeGreaterThan(EVENTS / 2);
});
