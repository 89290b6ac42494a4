import type { Bench } from "../parts/bench.ts";
import { dispatch, untilRunsClosed, warmUp } from "../parts/dispatching.ts";
import { startReceivers } from "../parts/receivers.ts";
import type { Scenario } from "../parts/scenario.ts";
import { seedPending, seedWebhooks } from "../parts/seeding.ts";
import { openStage } from "../parts/stage.ts";

/** A receiver elsewhere: what bounds a worker then is how many it keeps in flight, not this machine's cores. */
const ANSWERS_AFTER_MS = 50;

/** One queue drained by one worker, then by two; what both of them sent is counted too. */
export const workers: Scenario = {
  name: "workers",
  what: "pending deliveries drained by two workers together, to a receiver that answers after 50 ms",
  count: { full: 40_000, small: 10_000 },
  targets: { "of one worker": { atLeast: 1.3 }, "sent twice": { atMost: 0 } },
  comparisons: [],
  async measure(bench, count) {
    const one = await drainWith(bench, 1, count);
    const two = await drainWith(bench, 2, count);
    return [
      { detail: "", unit: "deliveries/s", value: two.rate },
      { detail: "one worker", unit: "deliveries/s", value: one.rate },
      { detail: "of one worker", unit: "times", value: two.rate / one.rate },
      { detail: "sent twice", unit: "requests", value: one.surplus + two.surplus },
    ];
  },
};

async function drainWith(
  bench: Bench,
  workerCount: number,
  count: number,
): Promise<{ rate: number; surplus: number }> {
  await using receivers = await startReceivers(bench, [{ status: 200, delayMs: ANSWERS_AFTER_MS }]);
  await using stage = await openStage(bench, { ROLE: "worker" });
  for (let more = 1; more < workerCount; more += 1) await stage.addWorker();
  const webhooks = await seedWebhooks(stage.db, stage.secrets, [`${receivers.urls[0]}/hooks`]);
  await warmUp(stage, receivers, webhooks);
  const before = await receivers.count();
  await seedPending(stage, { events: count, webhooks });
  const what = `${workerCount} delivering`;
  const seconds = await dispatch(stage, { what, requests: count, receivers });
  await untilRunsClosed(stage);
  return { rate: count / seconds, surplus: (await receivers.count()) - before - count };
}
