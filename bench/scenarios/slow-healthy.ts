import type { Bench } from "../parts/bench.ts";
import { dispatch, warmUp } from "../parts/dispatching.ts";
import { startReceivers } from "../parts/receivers.ts";
import type { Scenario } from "../parts/scenario.ts";
import { seedPending, seedWebhooks } from "../parts/seeding.ts";
import { openStage } from "../parts/stage.ts";
import type { Behaviour } from "../processes/receivers.ts";

const FAST_HOSTS = 100;
const SLOW_HOSTS = 20;
const SLOW_MS = 14_000;

/** The effect of slow but healthy receivers with long queues on fast ones. */
export const slowHealthy: Scenario = {
  name: "slow-healthy",
  what: "100 fast hosts beside 20 that answer after 14 s and have 100,000 deliveries queued each: the fast ones' rate",
  count: { full: 100_000, small: 20_000 },
  targets: { "": { atLeast: 0.9 } },
  comparisons: [],
  async measure(bench, count) {
    const alone = await timeOfFast(bench, count, 0);
    const beside = await timeOfFast(bench, count, count);
    return [
      { detail: "", unit: "ratio", value: alone / beside },
      { detail: "fast alone", unit: "s", value: alone },
      { detail: "fast beside slow", unit: "s", value: beside },
    ];
  },
};

/**
 * Seconds until all deliveries to the fast hosts are delivered. @param slowEach the number queued for each slow host
 */
async function timeOfFast(bench: Bench, count: number, slowEach: number): Promise<number> {
  await using receivers = await startReceivers(bench, [
    ...Array.from({ length: FAST_HOSTS }, (): Behaviour => ({ status: 200 })),
    ...Array.from({ length: SLOW_HOSTS }, (): Behaviour => ({ status: 200, delayMs: SLOW_MS })),
  ]);
  await using stage = await openStage(bench);
  const fast = await seedWebhooks(stage.db, stage.secrets, receivers.urls.slice(0, FAST_HOSTS));
  await warmUp(stage, receivers, fast);
  if (slowEach > 0) {
    const slow = await seedWebhooks(stage.db, stage.secrets, receivers.urls.slice(FAST_HOSTS));
    await seedPending(stage, { events: slowEach, webhooks: slow });
  }
  const events = Math.ceil(count / FAST_HOSTS);
  await seedPending(stage, { events, webhooks: fast });
  return await dispatch(stage, {
    what: slowEach > 0 ? "delivering to the fast beside the slow" : "delivering to the fast alone",
    requests: events * FAST_HOSTS,
    receivers,
    hosts: FAST_HOSTS,
    webhooks: fast,
  });
}
