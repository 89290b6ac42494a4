import { defaultPayloadConverter } from "@temporalio/common";
import { expect, test } from "vitest";
import { MAX_HELD_BACK, summariseGroups, summariseHeldBack } from "../../src/dispatch/worker/summaries.ts";
import type { FailingWebhook } from "../../src/queue/retry-groups.ts";
import { countsInWords } from "../../workflows/counts-in-words.ts";

let nextId = 1n;

function failing(
  group: number,
  host: string,
  deliveries: number,
  others: Partial<FailingWebhook> = {},
): FailingWebhook {
  nextId += 1n;
  return { webhookId: nextId, group, host, deliveries, delayMs: 1_000, isProbe: false, ...others };
}

test("an operator reads of a retry group how much of whose it is, and it is due with the first of its webhooks", () => {
  const first = failing(1, "shop.example", 1, { lastError: "503" });
  const { groups } = summariseGroups([
    first,
    failing(2, "shop.example", 1_200, { delayMs: 900, lastError: "no response within 15 s" }),
    failing(2, "shop.example", 34, { delayMs: 500 }),
    failing(3, "shop.example", 1, { delayMs: 900 }),
    failing(3, "other.example", 1, { delayMs: 0 }),
  ]);
  expect(groups.map(({ summary, delayMs }) => [summary, delayMs])).toEqual([
    [`webhook ${first.webhookId}, shop.example, 1 delivery, last: 503`, 1_000],
    ["shop.example, 2 webhooks, 1,234 deliveries, last: no response within 15 s", 500],
    ["2 webhooks, 2 deliveries", 0],
  ]);
});

test("the summary of a retry group fits into Temporal's 400 bytes, with any host name of DNS as a whole", () => {
  const longest = `${"a".repeat(63)}.${"b".repeat(63)}.${"c".repeat(63)}.${"d".repeat(61)}`;
  expect(longest).toHaveLength(253);
  const { groups } = summariseGroups([
    failing(1, `${longest}:65535`, 1_000_000, { webhookId: 2n ** 63n - 1n, isProbe: true }),
    failing(2, `${"a".repeat(1_900)}.example`, 1),
    failing(3, `${longest}:65535`, 1_000_000, { lastError: '"ü'.repeat(500) }),
  ]);
  expect(groups[0]?.summary).toBe(
    `webhook 9223372036854775807, ${longest}:65535, 1,000,000 deliveries, probe`,
  );
  for (const { summary } of groups) {
    const { data, metadata } = defaultPayloadConverter.toPayload(`before retrying ${summary}`);
    const bytes = [data, ...Object.values(metadata ?? {}), ...Object.keys(metadata ?? {})];
    expect(bytes.reduce((sum, each) => sum + (each?.length ?? 0), 0)).toBeLessThan(390);
  }
});

test("an operator reads of the first webhooks that circuit breakers hold back, and how many more there are", () => {
  const since = new Date("2026-11-22T10:00:00Z");
  const held = Array.from({ length: MAX_HELD_BACK + 1 }, (_, n) => ({
    webhookId: BigInt(n),
    targetUrl: "https://shop.example/hooks",
    state: n === 0 ? ("open" as const) : ("disabled" as const),
    since,
    reason: "10 attempts in a row have failed",
    nextProbe: n === 0 ? new Date("2026-11-22T10:05:00Z") : null,
    total: 1_234,
  }));
  const lines = summariseHeldBack(held);
  expect([lines[0], lines[1], ...lines.slice(MAX_HELD_BACK)]).toEqual([
    "webhook 0, shop.example: open since 2026-11-22 10:00:00 UTC (10 attempts in a row have failed), next probe 2026-11-22 10:05:00 UTC",
    "webhook 1, shop.example: disabled since 2026-11-22 10:00:00 UTC (10 attempts in a row have failed)",
    "and 1,224 more",
  ]);
  expect(summariseHeldBack([])).toEqual([]);
});

/** What Temporal stores of a search attribute with several values. */
const stored = (values: readonly string[]) => Buffer.byteLength(JSON.stringify(values));

test("each search attribute of a run stays below Temporal's 2,048 bytes, however many webhooks fail and however long their names are, and names all that fit", () => {
  const name = `${"a".repeat(60)}.${"b".repeat(60)}.example`;
  const many = Array.from({ length: 1_000 }, (_, n) => failing(1, `h${n}.${name}`, 1));
  const { webhookIds, hosts } = summariseGroups(many);
  for (const values of [webhookIds, hosts]) {
    expect(stored(values)).toBeLessThan(2_048);
    // One more would not fit.
    expect(stored([...values, values[0] as string])).toBeGreaterThan(1_800);
  }
  const few = Array.from({ length: 40 }, (_, n) => failing(1, `h${n % 20}.example`, 1));
  expect(summariseGroups(few)).toMatchObject({
    webhookIds: few.map(({ webhookId }) => String(webhookId)),
    hosts: Array.from({ length: 20 }, (_, n) => `h${n}.example`),
  });
});

test.each([
  [{ sent: 0, delivered: 0, failed: 0 }, "0 attempts"],
  [{ sent: 1, delivered: 1, failed: 0 }, "1 attempt: 1 delivered"],
  [{ sent: 4, delivered: 0, failed: 1 }, "4 attempts: 0 delivered, 1 failed, 3 to retry"],
  [{ sent: 4, delivered: 3, failed: 1 }, "4 attempts: 3 delivered, 1 failed"],
  [{ sent: 1_200, delivered: 1_000, failed: 0 }, "1,200 attempts: 1,000 delivered, 0 failed, 200 to retry"],
])("the counts of %o add up: %s", (counts, words) => {
  expect(countsInWords(counts)).toBe(words);
});
