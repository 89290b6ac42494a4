import { expect, test } from "vitest";
import { type ClaimedWebhook, parseTarget } from "../../../src/db/queue/webhooks.ts";
import { Scheduler, type Verdict } from "../../../src/delivery/limits/scheduler.ts";
import { SkippedWebhooks } from "../../../src/delivery/limits/skipped-webhooks.ts";
import type { Kind, Task } from "../../../src/delivery/limits/task.ts";
import { systemClock } from "../../../src/process/clock.ts";

interface Sending extends Task {
  readonly delivery: { readonly webhook: ClaimedWebhook };
}

const LATE: Verdict = { webhook: "timeout", host: "none" };
const UNREACHABLE: Verdict = { webhook: "none", host: "timeout" };

/** A webhook's deliveries, all of which are equal. */
function deliveryOf(id: number, host: string, kind: Kind = "first"): Sending {
  const target = parseTarget(`https://${host}/`);
  const webhook = { id: BigInt(id), revision: 1n, process: 1, target, secrets: [], installedAppId: null };
  return { kind, webhookId: webhook.id, window: webhook.id, host, delivery: { webhook } };
}

function start() {
  const time = { now: 0 };
  const scheduler = new Scheduler<Sending>({ budget: 5_000, max: 5_000, perHost: 100, perWebhook: 100 });
  const skipped = new SkippedWebhooks(scheduler, { ...systemClock, now: () => time.now });
  return {
    time,
    scheduler,
    skipped,
    /** @returns the number that was queued */
    queue(sending: Sending, deliveries: number): number {
      let queued = 0;
      for (let n = 0; n < deliveries; n += 1) {
        // Each is a delivery of its own.
        if (skipped.queue({ ...sending }).length === 0) queued += 1;
      }
      return queued;
    },
    /** Starts the next delivery and ends it. @returns the deliveries that are removed from the queue */
    attempt(verdict: Verdict): readonly Sending[] {
      const sending = scheduler.next();
      if (!sending) throw new Error("no delivery may start");
      const removed = skipped.removeHanging(sending, verdict);
      scheduler.end(sending, verdict);
      return removed;
    },
  };
}

test("claims skip a webhook with a full window that has as many deliveries queued, until one of them starts", () => {
  const { scheduler, skipped, queue } = start();
  queue(deliveryOf(1, "shop.example"), 7);
  const inFlight = Array.from({ length: 4 }, () => scheduler.next() as Sending);
  expect(skipped.of("first")).toEqual([]);
  queue(deliveryOf(1, "shop.example"), 1);
  expect(skipped.of("first")).toEqual([1n]);
  scheduler.end(inFlight[0] as Sending, { webhook: "none", host: "none" });
  scheduler.next();
  expect(skipped.of("first")).toEqual([]);
});

test("claims skip a webhook that has its part of the queue, which webhooks share evenly", () => {
  const { skipped, queue } = start();
  queue(deliveryOf(1, "shop.example"), 1_023);
  expect(skipped.of("first")).toEqual([]);
  queue(deliveryOf(1, "shop.example"), 1);
  expect(skipped.of("first")).toEqual([1n]);
  expect(skipped.of("retry")).toEqual([]);
  for (let id = 2; id <= 8; id += 1) queue(deliveryOf(id, `shop-${id}.example`), id === 2 ? 512 : 511);
  expect(skipped.of("first")).toEqual([1n, 2n]);
});

test("a host that hangs gets nine deliveries queued, and its webhooks are skipped until all of them have started", () => {
  const { scheduler, skipped, queue, attempt } = start();
  queue(deliveryOf(1, "dead.example"), 1);
  attempt(UNREACHABLE);
  expect(queue(deliveryOf(1, "dead.example"), 20)).toBe(9);
  expect(queue(deliveryOf(2, "dead.example"), 20)).toBe(0);
  expect(queue(deliveryOf(3, "shop.example"), 20)).toBe(20);
  expect(new Set(skipped.of("first"))).toEqual(new Set([1n, 2n]));
  expect([...skipped.crowded()].map(({ id }) => id)).toEqual([1n, 2n]);
  scheduler.remove(({ host }) => host === "shop.example");
  for (let n = 0; n < 8; n += 1) attempt(UNREACHABLE);
  expect(skipped.of("first")).toContain(2n);
  attempt(UNREACHABLE);
  expect(skipped.of("first")).toEqual([]);
});

test("however many first attempts a host without room has queued, its retries are queued too", () => {
  const { scheduler, skipped, queue } = start();
  for (let id = 1; id <= 30; id += 1) queue(deliveryOf(id, "shop.example"), 20);
  while (scheduler.next());
  expect(queue(deliveryOf(1, "shop.example"), 1)).toBe(0);
  expect(queue(deliveryOf(2, "shop.example", "retry"), 10)).toBe(10);
  expect(skipped.crowded()).toEqual(new Set([expect.objectContaining({ id: 1n })]));
});

test("the second timeout in succession removes all but four queued deliveries of a webhook, and none of others of its host", () => {
  const { scheduler, skipped, queue, attempt } = start();
  queue(deliveryOf(1, "shop.example"), 20);
  expect(attempt(LATE)).toEqual([]);
  queue(deliveryOf(2, "shop.example"), 5);
  const removed = attempt(LATE);
  expect(removed.map(({ webhookId }) => webhookId)).toEqual(Array(14).fill(1n));
  expect(scheduler.waitingOf(deliveryOf(1, "shop.example"))).toBe(4);
  expect(scheduler.waitingOf(deliveryOf(2, "shop.example"))).toBe(5);
  expect(skipped.of("first")).toContain(1n);
  expect(skipped.of("first")).not.toContain(2n);
});

test("a moved webhook is not skipped any longer, whatever its old host does", () => {
  const { skipped, queue, attempt } = start();
  queue(deliveryOf(1, "dead.example"), 1);
  attempt(UNREACHABLE);
  queue(deliveryOf(1, "dead.example"), 9);
  queue(deliveryOf(2, "dead.example"), 1);
  expect(skipped.of("first")).toContain(2n);
  skipped.forget(new Set([2n]));
  expect(skipped.of("first")).not.toContain(2n);
});

test("claims of retries share what they skip for some milliseconds, but know at once of a webhook with enough queued", () => {
  const { time, skipped, queue, attempt } = start();
  queue(deliveryOf(2, "dead.example"), 1);
  attempt(UNREACHABLE);
  expect(skipped.of("retry")).toEqual([]);
  queue(deliveryOf(1, "shop.example", "retry"), 1_024);
  expect(skipped.of("retry")).toEqual([]);
  time.now += 20;
  expect(skipped.of("retry")).toEqual([1n]);
  queue(deliveryOf(2, "dead.example", "retry"), 10);
  expect(new Set(skipped.of("retry"))).toEqual(new Set([1n, 2n]));
});
