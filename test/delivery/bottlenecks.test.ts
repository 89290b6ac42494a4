import { createNoopMeter } from "@opentelemetry/api";
import pino from "pino";
import { expect, test } from "vitest";
import type { BottleneckCause } from "../../src/contract/stats/bottlenecks.ts";
import { Pacer } from "../../src/lib/egress/pacer.ts";
import { createDeliveryInstruments } from "../../src/metrics/instruments.ts";
import { aReceiver, heldReplies } from "../support/receivers.ts";
import { SimulatedTime } from "../support/simulation/simulated-time.ts";
import { type EngineOptions, type EngineParts, freshRun, pump, queueFor, useEngine } from "./engine-parts.ts";

/** An engine each of whose samples ends a minute, and the time and the log lines by cause. */
async function startMeasured(settings: Record<string, string> = {}, more: EngineOptions["more"] = {}) {
  const seconds: Record<string, number> = {};
  const lines: { cause?: string }[] = [];
  const log = pino({}, { write: (line) => lines.push(JSON.parse(line)) });
  let minutes = 0;
  const now = () => {
    minutes += 1;
    return minutes * 60_000;
  };
  const instruments = createDeliveryInstruments(createNoopMeter());
  instruments.bottleneck = {
    add(value, { cause } = {}) {
      seconds[String(cause)] = (seconds[String(cause)] ?? 0) + value;
    },
  };
  const options = { more: { now, instruments, log, ...more } };
  const parts = await useEngine({ HEARTBEAT_TIMEOUT: "4s", ...settings }, options);
  return { parts, seconds, lines };
}

/** Waits until the row of the process names the cause, and again until it names none. */
async function expectFound(
  cause: BottleneckCause,
  { parts, seconds, lines }: Awaited<ReturnType<typeof startMeasured>>,
  end: () => unknown,
) {
  const found = () => parts.db("workers").pluck("bottleneck");
  await expect.poll(found).toEqual([cause]);
  expect(seconds[cause]).toBeGreaterThan(0);
  expect(lines.map((line) => line.cause)).toContain(cause);
  await end();
  await expect.poll(found).toEqual([null]);
}

/** Sends what is queued. Resolves once all is delivered. */
async function sent({ db, engine }: EngineParts): Promise<void> {
  expect(await pump(engine, await freshRun(db))).toMatchObject({ end: "done", retrying: 0 });
}

test("a process that has as many requests in flight as it may have says so", async () => {
  const measured = await startMeasured({ DELIVERY_MAX_IN_FLIGHT: "1" });
  const held = heldReplies();
  const { url } = await aReceiver(held.reply);
  await queueFor(measured.parts, url, { webhooks: 1, events: 3 });
  const sending = sent(measured.parts);
  await expectFound("limit", measured, () => held.answer());
  await sending;
});

test.each([
  ["claims", "queue"],
  ["results", "deliveries"],
])("a process whose %s wait for a lock in the database says so", async (_what, table) => {
  const measured = await startMeasured();
  const { db } = measured.parts;
  const receiver = await aReceiver();
  await queueFor(measured.parts, receiver.url, { webhooks: 10, events: 30 });
  const lock = await db.transaction();
  await lock.raw("lock table ?? in exclusive mode", [table]);
  const sending = sent(measured.parts);
  await expectFound("database", measured, () => lock.rollback());
  await sending;
  expect(receiver.received).toHaveLength(300);
});

test("a process whose requests wait for new connections says so", async () => {
  const time = new SimulatedTime();
  const handshakes = new Pacer({ atOnce: 1, perSecond: 1 }, time.clock);
  const measured = await startMeasured({}, { handshakes });
  const held = heldReplies();
  for (const { url } of [await aReceiver(held.reply), await aReceiver(held.reply)])
    await queueFor(measured.parts, url, { webhooks: 1, events: 2 });
  const sending = sent(measured.parts);
  await expectFound("handshakes", measured, async () => {
    held.answer();
    await time.run(60_000);
  });
  await sending;
});
