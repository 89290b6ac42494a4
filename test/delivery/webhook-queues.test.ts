import { beforeEach, expect, test } from "vitest";
import type { ClaimedDelivery } from "../../src/db/queue/claims.ts";
import { Contenders } from "../../src/delivery/contenders.ts";
import { type Room, WebhookQueues } from "../../src/delivery/webhook-queues.ts";

const SLOTS = 12;
let contenders: Contenders;
let queues: WebhookQueues;
let inFlight: Map<string, number>;
let aside: string[];
let full: Set<string>;

beforeEach(() => {
  contenders = new Contenders();
  queues = new WebhookQueues(contenders);
  inFlight = new Map();
  aside = [];
  full = new Set();
});

const room: Room = {
  ofHost: (host) => !full.has(host),
  ofWebhook: () => true,
  isBelowShare: (host) => (inFlight.get(host) ?? 0) < contenders.shareOf(SLOTS),
};

/** So many deliveries to each host, of a webhook each. */
function queue(hosts: readonly string[], each: number): void {
  for (const host of hosts) {
    for (let n = 0; n < each; n += 1) {
      queues.push(
        { id: `${host}-${n}`, webhook: { id: BigInt(host.charCodeAt(0)) } } as ClaimedDelivery,
        host,
      );
    }
  }
}

/** What is taken while slots are free, by host. */
function take(slots = SLOTS): string {
  let left = slots;
  const taken: string[] = [];
  queues.takeWhile(
    () => left > 0,
    room,
    (_delivery, host) => {
      left -= 1;
      inFlight.set(host, (inFlight.get(host) ?? 0) + 1);
      taken.push(host);
    },
    (host) => aside.push(host),
  );
  return taken.join("");
}

test("hosts are served in turn", () => {
  queue(["a", "b", "c"], 10);
  expect(take(7)).toBe("abcabca");
  expect(take(2)).toBe("bc");
});

test("a host alone has all slots", () => {
  queue(["a"], 20);
  expect(take()).toBe("a".repeat(SLOTS));
});

test("a host that has its share is set aside while others wait, whoever's turn it is", () => {
  queue(["a"], 20);
  expect(take(4)).toBe("aaaa");
  queue(["b", "c", "d"], 20);
  // Three each, and a has four already.
  expect(take()).toBe("bcdbcdbcd");
  expect(aside).toEqual(["a", "b", "c", "d"]);
  inFlight.set("a", 2);
  queues.putBack("a");
  expect(take()).toBe("a");
});

test("a host for which nothing waits any more leaves its share to the others, in other queues too", () => {
  const others = new WebhookQueues(contenders);
  others.push({ id: "x", webhook: { id: 9n } } as ClaimedDelivery, "b");
  queue(["a"], 20);
  expect(take()).toBe("a".repeat(6));
  others.take(9n);
  queues.putBack("a");
  expect(take()).toBe("a".repeat(6));
});

test("a host without room takes no share until it is put back", () => {
  queue(["b", "a"], 20);
  full.add("b");
  expect(take()).toBe("a".repeat(SLOTS));
  full.clear();
  inFlight.set("a", 6);
  queues.putBack("b");
  expect(take()).toBe("b".repeat(6));
});

test("what many queues hold for a host counts once", () => {
  const others = new WebhookQueues(contenders);
  others.push({ id: "x", webhook: { id: 1n } } as ClaimedDelivery, "a");
  queue(["a"], 20);
  expect(take()).toBe("a".repeat(SLOTS));
  expect(queues.drain()).toHaveLength(20 - SLOTS);
  expect(others.drain()).toHaveLength(1);
  expect(contenders.shareOf(SLOTS)).toBe(SLOTS);
});
