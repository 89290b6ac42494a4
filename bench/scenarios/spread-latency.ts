import type { Bench } from "../parts/bench.ts";
import { dispatch, warmUp } from "../parts/dispatching.ts";
import { latencyOf } from "../parts/latencies.ts";
import { watchMemory } from "../parts/memory.ts";
import { startReceivers } from "../parts/receivers.ts";
import type { Scenario } from "../parts/scenario.ts";
import { seedPending, seedWebhooks } from "../parts/seeding.ts";
import { openStage } from "../parts/stage.ts";
import type { Behaviour } from "../processes/receivers.ts";

const HOSTS = 1_000;
const HANGING = 20;
const FAILING = 30;

/** A realistic mix of receivers: near and far, some slow, a few that never respond, a few that fail. */
export const spreadLatency: Scenario = {
  name: "spread-latency",
  what: "1,000 hosts that answer after 20 ms to 3 s; 2 % never answer, 3 % answer 503: the healthy ones' rate",
  count: { full: 100_000, small: 20_000 },
  targets: { "": { atLeast: 0.8 } },
  comparisons: [],
  async measure(bench, count) {
    const alone = await measureOnce(bench, count, false);
    const beside = await measureOnce(bench, count, true);
    return [
      { detail: "", unit: "ratio", value: alone.seconds / beside.seconds },
      { detail: "healthy alone", unit: "deliveries/s", value: alone.requests / alone.seconds },
      { detail: "healthy beside bad", unit: "deliveries/s", value: beside.requests / beside.seconds },
      { detail: "memory", unit: "MiB at most", value: beside.memory },
    ];
  },
};

async function measureOnce(
  bench: Bench,
  count: number,
  besideBad: boolean,
): Promise<{ seconds: number; requests: number; memory: number }> {
  const healthyHosts = HOSTS - HANGING - FAILING;
  const behaviours: Behaviour[] = [
    ...Array.from({ length: healthyHosts }, (_, n) => ({ status: 200, delayMs: latencyOf(n, healthyHosts) })),
    ...Array.from({ length: HANGING }, () => "never" as const),
    ...Array.from({ length: FAILING }, (_, n) => ({ status: 503, delayMs: latencyOf(n, FAILING) })),
  ];
  await using receivers = await startReceivers(bench, behaviours);
  await using stage = await openStage(bench);
  const healthy = await seedWebhooks(stage.db, stage.secrets, receivers.urls.slice(0, healthyHosts));
  await warmUp(stage, receivers, healthy);
  const events = Math.ceil(count / HOSTS);
  const bad = besideBad
    ? await seedWebhooks(stage.db, stage.secrets, receivers.urls.slice(healthyHosts))
    : [];
  await seedPending(stage, { events, webhooks: [...healthy, ...bad] });
  using memory = watchMemory(stage.deliveryPid);
  const requests = events * healthyHosts;
  const seconds = await dispatch(stage, {
    what: besideBad ? "delivering to the healthy beside the bad" : "delivering to the healthy alone",
    requests,
    receivers,
    hosts: healthyHosts,
    webhooks: healthy,
  });
  return { seconds, requests, memory: memory.stop().max };
}
