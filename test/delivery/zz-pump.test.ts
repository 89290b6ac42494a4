import { randomBytes, randomUUID } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import { afterEach, beforeEach, expect, test } from "vitest";
import { rows } from "../../src/db/database.ts";
import { publishEvents } from "../../src/db/events/publish.ts";
import { pump } from "../../src/delivery/pump.ts";
import { type Receiver, type Reply, startReceiver } from "../../src/dev/receiver.ts";
import { trustedAuthority } from "../support/test-service.ts";
import { type EngineParts, freshRun, queueFor, startEngine } from "./engine-parts.ts";

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

test("pumps side by side deliver many deliveries of few events once each, with their own payloads", async () => {
  const [webhooks, events] = [400, 10];
  const { url, received } = await receiver();
  await queueFor(parts, url, { webhooks, events });
  const runId = await freshRun(parts.db);
  const pumps = Array.from({ length: 4 }, () => pump(parts.engine, runId, new AbortController().signal));
  const results = await Promise.all(pumps);
  console.log("RES", JSON.stringify(await rows(parts.db, "select status, error, min(duration_ms), max(duration_ms), count(*)::int as n from attempts group by 1,2")), JSON.stringify(await rows(parts.db, "select max(duration_ms), count(*) filter (where duration_ms > 500)::int as slow from deliveries")), results.map((r) => r.handedOver));
  expect(results.reduce((sum, { delivered }) => sum + delivered, 0)).toBe(webhooks * events);
  expect(results.every(({ more }) => !more)).toBe(true);
  expect(received).toHaveLength(webhooks * events);
  for (let n = 1; n <= events; n += 1) {
    expect(received.filter(({ body }) => body === `{"N":${n}}`)).toHaveLength(webhooks);
  }
  const states = await rows(
    parts.db,
    "select state, attempts, count(*)::int as n from all_deliveries group by 1, 2",
  );
  expect(states).toEqual([{ state: "delivered", attempts: 1, n: webhooks * events }]);
});

test("an event for more webhooks than one statement takes is fanned out by the pumps, and delivered to each once", async () => {
  const { url, received } = await receiver();
  await queueFor(parts, url, { webhooks: 2_100, events: 0 });
  await parts.db("processes").insert({ process: 1, revision: 1, live: 2_100 });
  const [published] = await publishEvents(parts.db, [
    {
      apiKeyId: randomUUID(),
      idempotencyKey: "k",
      requestSha256: randomBytes(32),
      process: 1,
      userId: "u",
      occurred: null,
      payload: "{}",
    },
  ]);
  expect(published).toMatchObject({ queued: 2_100 });
  const runId = await freshRun(parts.db);
  const results = await Promise.all(
    [1, 2].map(() => pump(parts.engine, runId, new AbortController().signal)),
  );
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

test("first attempts to a webhook that fails come after the others' while these have any, and are made then", async () => {
  const failing = await receiver(() => 500);
  let failedBefore = 0;
  const well = await receiver(() => {
    if (well.received.length === 10 * 200) failedBefore = failing.received.length;
    return 200;
  });
  await queueFor(parts, failing.url, { webhooks: 1, events: 200 });
  await queueFor(parts, well.url, { webhooks: 10, events: 200 });
  const pumped = pump(parts.engine, await freshRun(parts.db), new AbortController().signal);
  expect(await pumped).toMatchObject({ sent: 2_200, delivered: 2_000, retrying: 200, more: false });
  // What was claimed before the first failure was known, and little more.
  expect(failedBefore).toBeGreaterThan(0);
  expect(failedBefore).toBeLessThan(100);
  expect(failing.received).toHaveLength(200);
});

test("hosts whose retries wait take no share of what first attempts may have in flight", async () => {
  let [inFlight, most] = [0, 0];
  const slow = await receiver(async () => {
    inFlight += 1;
    most = Math.max(most, inFlight);
    await wait(20);
    inFlight -= 1;
    return 200;
  });
  for (let n = 0; n < 200; n += 1) parts.engine.retries.contenders.join(`https://host-${n}.example`);
  await queueFor(parts, slow.url, { webhooks: 1, events: 500 });
  await pump(parts.engine, await freshRun(parts.db), new AbortController().signal);
  // Shared out among two hundred it would be two.
  expect(most).toBeGreaterThan(20);
});
