import type { Bench } from "../parts/bench.ts";
import { dispatch, untilRunsClosed, warmUp } from "../parts/dispatching.ts";
import { startReceivers } from "../parts/receivers.ts";
import type { Measurement, Scenario } from "../parts/scenario.ts";
import { seedPending, seedWebhooks } from "../parts/seeding.ts";
import { openStage } from "../parts/stage.ts";

/** Remote receivers: with few requests in flight, latency limits a worker instead of this machine's cores. */
const RESPONSE_DELAY_MS = 50;
const FEW_IN_FLIGHT = { DELIVERY_MAX_IN_FLIGHT: "160" };
const MANY_WEBHOOKS = 100;

/** A queue sent by one worker, then by two, and the number of duplicates. */
export const workers: Scenario = {
  name: "workers",
  what: "pending deliveries drained by one worker and by two, to receivers that answer after 50 ms",
  count: { full: 40_000, small: 10_000 },
  targets: {
    "": { atLeast: 1.3 },
    "one webhook": { atLeast: 1.3 },
    defaults: { atLeast: 0.9 },
    "defaults, one webhook": { atLeast: 0.9 },
    "sent twice": { atMost: 0 },
  },
  comparisons: [],
  async measure(bench, count) {
    const cases = [
      { detail: "", settings: FEW_IN_FLIGHT, webhooks: MANY_WEBHOOKS },
      { detail: "one webhook", settings: FEW_IN_FLIGHT, webhooks: 1 },
      { detail: "defaults", settings: {}, webhooks: MANY_WEBHOOKS },
      { detail: "defaults, one webhook", settings: {}, webhooks: 1 },
    ];
    const figures: Measurement[] = [];
    let sentTwice = 0;
    for (const { detail, settings, webhooks } of cases) {
      const one = await drainWith(bench, 1, count, settings, webhooks);
      const two = await drainWith(bench, 2, count, settings, webhooks);
      sentTwice += one.surplus + two.surplus;
      const note = `${Math.round(one.rate)}/s by one, ${Math.round(two.rate)}/s by two`;
      figures.push({ detail, unit: "times one worker", value: two.rate / one.rate, note });
    }
    return [...figures, { detail: "sent twice", unit: "requests", value: sentTwice }];
  },
};

async function drainWith(
  bench: Bench,
  workerCount: number,
  count: number,
  settings: Record<string, string>,
  webhookCount: number,
): Promise<{ rate: number; surplus: number }> {
  const behaviours = Array.from({ length: webhookCount }, () => ({
    status: 200,
    delayMs: RESPONSE_DELAY_MS,
  }));
  await using receivers = await startReceivers(bench, behaviours);
  await using stage = await openStage(bench, { ...settings, ROLE: "worker" });
  for (let more = 1; more < workerCount; more += 1) await stage.addWorker();
  const urls = receivers.urls.map((url) => `${url}/hooks`);
  const webhooks = await seedWebhooks(stage.db, stage.secrets, urls);
  await warmUp(stage, receivers, webhooks);
  const before = await receivers.count();
  await seedPending(stage, { events: count / webhookCount, webhooks });
  const what = `${workerCount} delivering`;
  const seconds = await dispatch(stage, { what, requests: count, receivers });
  await untilRunsClosed(stage);
  return { rate: count / seconds, surplus: (await receivers.count()) - before - count };
}
