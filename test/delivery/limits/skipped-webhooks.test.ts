import { expect, test } from "vitest";
import { Scheduler, type Verdict } from "../../../src/delivery/limits/scheduler.ts";
import { SkippedWebhooks } from "../../../src/delivery/limits/skipped-webhooks.ts";
import type { Kind } from "../../../src/delivery/limits/task.ts";

const UNREACHABLE: Verdict = { webhook: "none", host: "timeout" };
const LATE: Verdict = { webhook: "timeout", host: "none" };

function start() {
  const limits = { max: 5_000, perHost: 100, perWebhook: 100 };
  const scheduler = new Scheduler<ReturnType<typeof sendingTo>>(limits, () => true);
  const skipped = new SkippedWebhooks(scheduler);
  function sendingTo(id: number, host: string, kind: Kind) {
    return { kind, webhookId: BigInt(id), window: BigInt(id), host };
  }
  return {
    scheduler,
    skipped,
    /** Queues deliveries of a webhook. @returns the number that was queued */
    queue(id: number, host: string, deliveries: number, kind: Kind = "first"): number {
      const all = Array.from({ length: deliveries }, () => sendingTo(id, host, kind));
      return all.filter((each) => skipped.queue(each).length === 0).length;
    },
    /** Starts and ends the next delivery. @returns the number that is removed from the queue */
    attempt(verdict: Verdict): number {
      const sending = scheduler.next();
      if (!sending) throw new Error("no delivery may start");
      const removed = skipped.removeHanging(sending, verdict);
      scheduler.end(sending, verdict);
      return removed.length;
    },
  };
}

test("claims skip a webhook that has its part of the queue, which webhooks share evenly, or as many queued as its full window", () => {
  const { scheduler, skipped, queue } = start();
  queue(1, "shop.example", 5);
  for (let n = 0; n < 2; n += 1) scheduler.next();
  expect(skipped.of("first")).toEqual([]);
  queue(1, "shop.example", 1);
  expect(skipped.of("first")).toEqual([1n]);
  queue(9, "other.example", 1_023);
  expect(skipped.of("first")).toEqual([1n]);
  queue(9, "other.example", 1);
  expect(skipped.of("first")).toEqual([1n, 9n]);
  for (let id = 2; id <= 8; id += 1) queue(id, `shop-${id}.example`, id === 2 ? 512 : 300);
  expect(skipped.of("first")).toEqual([1n, 9n, 2n]);
});

test("a host that hangs gets nine deliveries queued, and its webhooks are skipped until all of them have started, or they have moved", () => {
  const { scheduler, skipped, queue, attempt } = start();
  queue(1, "dead.example", 1);
  attempt(UNREACHABLE);
  expect([1, 2, 4].map((id) => queue(id, "dead.example", 20))).toEqual([9, 0, 0]);
  expect(queue(3, "shop.example", 20)).toBe(20);
  expect(new Set(skipped.of("first"))).toEqual(new Set([1n, 2n, 4n]));
  expect(skipped.crowded().map(({ webhookId }) => webhookId)).toEqual([1n, 2n, 4n]);
  skipped.forget(new Set([4n]));
  expect(skipped.of("first")).not.toContain(4n);
  scheduler.remove(({ host }) => host === "shop.example");
  for (let n = 0; n < 8; n += 1) attempt(UNREACHABLE);
  expect(skipped.of("first")).toContain(2n);
  attempt(UNREACHABLE);
  expect(skipped.of("first")).toEqual([]);
});

test("the second timeout in succession removes all but four queued deliveries of a webhook, and none of others of its host", () => {
  const { skipped, queue, attempt } = start();
  queue(1, "shop.example", 20);
  expect(attempt(LATE)).toBe(0);
  queue(2, "shop.example", 5);
  expect(attempt(LATE)).toBe(14);
  expect(new Set(skipped.of("first"))).toEqual(new Set([1n]));
});

test("however many first attempts a host without room has queued, its retries are queued too", () => {
  const { scheduler, skipped, queue } = start();
  for (let id = 1; id <= 30; id += 1) queue(id, "shop.example", 20);
  while (scheduler.next());
  expect(queue(1, "shop.example", 1)).toBe(0);
  expect(skipped.of("retry")).toEqual([]);
  expect(queue(2, "shop.example", 10, "retry")).toBe(10);
  queue(3, "other.example", 1_024, "retry");
  expect(skipped.of("retry")).toEqual([2n, 3n]);
});
