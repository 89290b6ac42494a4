import { expect, test } from "vitest";
import type { FailingWebhook } from "../../src/db/queue/retry-groups.ts";
import { summariseGroups } from "../../src/temporal/summaries.ts";

let nextId = 1n;

function failing(group: number, targetUrl: string, deliveries: number, delayMs = 1_000): FailingWebhook {
  nextId += 1n;
  return { webhookId: nextId, group, targetUrl, deliveries, delayMs };
}

test("an operator reads of a retry group how much of whose it is", () => {
  const { groups } = summariseGroups([
    failing(1, "https://shop.example/hooks", 1),
    failing(2, "https://shop.example/a", 1_200),
    failing(2, "https://shop.example/b", 34),
    failing(3, "https://shop.example/c", 1),
    failing(3, "https://other.example/", 1),
  ]);
  expect(groups.map(({ summary }) => summary)).toEqual([
    "shop.example, 1 delivery",
    "shop.example, 2 webhooks, 1,234 deliveries",
    "2 webhooks, 2 deliveries",
  ]);
});

test("a retry group is due with the last of its webhooks, or at once when one was never tried", () => {
  const { groups } = summariseGroups([
    failing(1, "https://shop.example/", 1, 500),
    failing(1, "https://other.example/", 1, 900),
    failing(2, "https://shop.example/", 1, 900),
    failing(2, "https://other.example/", 1, 0),
  ]);
  expect(groups.map(({ delayMs }) => delayMs)).toEqual([900, 0]);
});

test("the search attributes of a run take 200 webhooks and 200 hosts, however many fail", () => {
  const many = Array.from({ length: 300 }, (_, n) => failing(1, `https://h${n}.example/`, 1));
  const { webhookIds, hosts } = summariseGroups(many);
  expect([webhookIds.length, hosts.length]).toEqual([200, 200]);
  expect(hosts[0]).toBe("h0.example");
});
