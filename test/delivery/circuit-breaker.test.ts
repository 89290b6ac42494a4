import { setTimeout as wait } from "node:timers/promises";
import { expect, type TestContext, test } from "vitest";
import { type Receiver, type Reply, startReceiver } from "../../demo/receiver.ts";
import type { BreakerSettings, BreakerState } from "../../src/db/circuit-breaker/breakers.ts";
import { rows } from "../../src/db/database.ts";
import { imbalance, readLedger } from "../../src/db/deliveries/ledger.ts";
import { updateWebhook } from "../../src/db/webhooks/webhook-update.ts";
import { trustedAuthority } from "../support/test-service.ts";
import { type EngineParts, freshRun, pump, queueFor, startEngine } from "./engine-parts.ts";

const SETTINGS: BreakerSettings = {
  failures: 5,
  failingSeconds: 1,
  probeSeconds: 1,
  disableSeconds: 432_000,
  disableOnGone: false,
  resendFailed: false,
};

/** Engines that send what is pending as it comes, to a receiver of one webhook. */
async function start(
  { onTestFinished }: TestContext,
  reply: Reply,
  engines: number,
  { events, ...settings }: Partial<BreakerSettings> & { events: number },
): Promise<{ parts: EngineParts; receiver: Receiver }> {
  const parts = await startEngine();
  const receiver = await startReceiver(await (await trustedAuthority()).issue(["localhost"]), reply);
  onTestFinished(parts.end);
  onTestFinished(receiver.close);
  // As publishing and registering would have it.
  await parts.db("processes").insert({ process: 1, revision: 1n, live: 1 });
  await queueFor(parts, receiver.url, { webhooks: 1, events });
  const [webhook] = await rows<{ id: bigint }>(parts.db, "select id from webhooks");
  const breaker = { ...SETTINGS, ...settings };
  await updateWebhook(parts.db, "everything", webhook?.id as bigint, { breaker });
  const runId = await freshRun(parts.db);
  const stopping = new AbortController();
  const all = [parts.engine, ...Array.from({ length: engines - 1 }, () => parts.another())];
  const pumped = Promise.all(
    all.map(({ pumps }) => pumps.run(runId, { lingers: true, forMs: 600_000 }, stopping.signal)),
  );
  onTestFinished(async () => {
    stopping.abort();
    await pumped;
  });
  return { parts, receiver };
}

async function until({ expect }: TestContext, { db }: EngineParts, state: BreakerState): Promise<void> {
  const found = () => rows(db, "select state from webhook_breakers");
  await expect.poll(found).toEqual([{ state }]);
}

const waiting = async ({ db }: EngineParts) => (await rows(db, "select from queue")).length;

test.concurrent("a run looks for a probe that the filter matches, one after the other, and ends when none is left", async (context) => {
  const parts = await startEngine();
  const { db } = parts;
  const receiver = await startReceiver(await (await trustedAuthority()).issue(["localhost"]), () => 200);
  context.onTestFinished(parts.end);
  context.onTestFinished(receiver.close);
  await db("processes").insert({ process: 1, revision: 1n, live: 1 });
  const events = 3;
  await queueFor(parts, receiver.url, { webhooks: 1, events });
  await db.raw(`update events set payload = replace(payload, '"N"', '"OrderId"')`);
  const [webhook] = await rows<{ id: bigint }>(db, "select id from webhooks");
  const id = webhook?.id as bigint;
  await updateWebhook(db, "everything", id, { breaker: SETTINGS, filter: `event.order_id == ${events}` });
  await db("webhooks").update({ paused: new Date() });
  await db.raw(
    "update webhook_breakers set state = 'open', outage_since = now(), next_probe = now(), due = now()",
  );
  const probe = () => rows(db, "select from webhooks where test_delivery is not null");
  await context.expect.poll(probe).toHaveLength(1);
  expect(await pump(parts.engine, await freshRun(db))).toMatchObject({ delivered: 1, end: "done" });
  expect(receiver.received.map(({ body }) => body)).toEqual([`{"OrderId":${events}}`]);
  expect(await rows(db, "select from deliveries where outcome = 'filtered'")).toHaveLength(events - 1);
});

test.concurrent("an endpoint that fails gets one probe at a time from three workers, and all that waited once it answers", async (context) => {
  let [status, inFlight, most] = [503, 0, 0];
  const { parts, receiver } = await start(
    context,
    async () => {
      inFlight += 1;
      most = Math.max(most, inFlight);
      await wait(20);
      inFlight -= 1;
      return status;
    },
    3,
    { events: 1_200 },
  );
  await until(context, parts, "open");
  // No request starts a second later, and the last one has been answered.
  await wait(1_200);
  const [before, left] = [receiver.received.length, await waiting(parts)];
  expect(left).toBeGreaterThan(500);
  most = 0;
  await receiver.until((received) => received.length >= before + 2);
  expect(most).toBe(1);
  expect(await waiting(parts)).toBeGreaterThan(left - 4);
  status = 200;
  // Without the wait for the next probe, which doubles with each failed probe, also with one that has just been sent.
  const probeNow = "update webhook_breakers set next_probe = now(), due = now() where next_probe > now()";
  await context.expect
    .poll(() => parts.db.raw(probeNow).then(() => rows(parts.db, "select state from webhook_breakers")))
    .toEqual([{ state: "closed" }]);
  await context.expect.poll(() => waiting(parts)).toBe(0);
  expect(most).toBeGreaterThan(4);
  expect(imbalance(await readLedger(parts.db))).toBe(0n);
  const tried = await rows<{ n: number }>(parts.db, "select count(*)::int as n from all_attempts");
  expect(tried).toEqual([{ n: receiver.received.length }]);
});

test.concurrent("an endpoint that answers 410 Gone gets no more deliveries, where that was chosen", async (context) => {
  const { parts, receiver } = await start(context, () => 410, 2, { events: 400, disableOnGone: true });
  await until(context, parts, "disabled");
  await wait(1_200);
  const before = receiver.received.length;
  await wait(1_500);
  expect(receiver.received.length).toBe(before);
  expect(before + (await waiting(parts))).toBe(400);
  expect(imbalance(await readLedger(parts.db))).toBe(0n);
});
