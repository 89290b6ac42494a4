import pino from "pino";
import { expect, onTestFinished, test } from "vitest";
import { watchBlockedThread } from "../../../src/lib/process/blocked-thread.ts";
import { systemClock as clock } from "../../../src/lib/process/clock.ts";

/** Uses processor time of this thread, in milliseconds. */
function compute(ms: number): void {
  for (const from = clock.worked(); clock.worked() - from < ms; );
}

function watch() {
  const lines: { by: string; blockedMs: number; blocks: number }[] = [];
  const thread = watchBlockedThread(pino({}, { write: (line: string) => lines.push(JSON.parse(line)) }));
  thread.start();
  onTestFinished(thread.stop);
  return { lines, thread };
}

test("work that blocks the thread for 100 ms is logged by its name, once for repeated blocks", async () => {
  const { lines, thread } = watch();
  thread.works("WebhookService.ListWebhooks");
  compute(120);
  thread.works("DeliveryService.ListDeliveries");
  compute(10);
  thread.works("WebhookService.ListWebhooks");
  compute(120);
  await expect.poll(() => lines.length).toBe(1);
  expect(lines[0]).toMatchObject({ by: "WebhookService.ListWebhooks", blocks: 1 });
  expect(lines[0]?.blockedMs).toBeGreaterThanOrEqual(120);
});

test("work that pauses is not logged", async () => {
  const { lines, thread } = watch();
  for (let n = 0; n < 20; n += 1) {
    thread.works("fold");
    compute(10);
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
  expect(lines).toEqual([]);
});
