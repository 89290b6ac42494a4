import { SERVICE_HEADERS, startBareLoop } from "../parts/bare-loop.ts";
import type { Bench } from "../parts/bench.ts";
import { dispatch, warmUp } from "../parts/dispatching.ts";
import { webhookUrls } from "../parts/fan-out.ts";
import { watchMemory } from "../parts/memory.ts";
import { type Receivers, startReceivers } from "../parts/receivers.ts";
import type { Scenario } from "../parts/scenario.ts";
import { seedPending, seedWebhooks } from "../parts/seeding.ts";
import { openStage } from "../parts/stage.ts";

/** The latency of the receivers, and the comparison. */
interface Distance {
  delayMs: number;
  hosts: number;
  webhooksEach: number;
  /** The number of requests in flight of the bare loop. */
  inFlight: number;
}

/** Receivers on another continent: a hundred hosts that respond after 300 ms. */
export const far = farAway("far", { delayMs: 300, hosts: 100, webhooksEach: 10, inFlight: 1_200 }, 600);
/** Slow receivers, which respond after 1.2 s. */
export const farther = farAway(
  "farther",
  { delayMs: 1_200, hosts: 100, webhooksEach: 10, inFlight: 2_400 },
  800,
);
/** One such receiver. */
export const farOne = farAway("far-one", { delayMs: 300, hosts: 1, webhooksEach: 1, inFlight: 300 });

function farAway(name: string, distance: Distance, memory?: number): Scenario {
  const { delayMs, hosts, inFlight } = distance;
  return {
    name,
    what: `${hosts} healthy hosts that answer after ${delayMs} ms, and a bare loop that signs, with ${inFlight} in flight`,
    count: { full: hosts === 1 ? 30_000 : 100_000, small: hosts === 1 ? 5_000 : 20_000 },
    targets: { "of the loop": { atLeast: 0.75 }, ...(memory ? { memory: { atMost: memory } } : {}) },
    comparisons: [],
    async measure(bench, count) {
      const behaviours = Array.from({ length: hosts }, () => ({ status: 200, delayMs }));
      await using receivers = await startReceivers(bench, behaviours);
      const loop = await rateOfLoop(bench, receivers, count, inFlight);
      const { rate, max } = await rateOfService(bench, receivers, count, distance);
      return [
        { detail: "", unit: "deliveries/s", value: rate },
        { detail: "of the loop", unit: "ratio", value: rate / loop },
        { detail: "loop", unit: "POSTs/s", value: loop },
        { detail: "memory", unit: "MiB at most", value: max },
      ];
    },
  };
}

async function rateOfLoop(
  bench: Bench,
  receivers: Receivers,
  count: number,
  inFlight: number,
): Promise<number> {
  await using loop = startBareLoop(bench, receivers);
  const options = { concurrency: inFlight, headers: SERVICE_HEADERS, signs: true };
  return count / (await loop.run({ ...options, requests: count }));
}

async function rateOfService(
  bench: Bench,
  receivers: Receivers,
  count: number,
  { webhooksEach }: Distance,
): Promise<{ rate: number; max: number }> {
  // The memory is that of a worker alone, with all its processes.
  await using stage = await openStage(bench, { ROLE: "api" });
  const webhooks = await seedWebhooks(stage.db, stage.secrets, webhookUrls(receivers.urls, webhooksEach));
  await warmUp(stage, receivers, webhooks);
  const events = Math.ceil(count / webhooks.length);
  await seedPending(stage, { events, webhooks });
  using memory = watchMemory(stage.deliveryPid);
  const requests = events * webhooks.length;
  const seconds = await dispatch(stage, { what: "delivering", requests, receivers });
  return { rate: requests / seconds, max: memory.stop().max };
}
