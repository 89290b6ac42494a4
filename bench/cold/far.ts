import { SERVICE_HEADERS, startBareLoop } from "../parts/bare-loop.ts";
import type { ColdBench, ColdScenario } from "./cold-bench.ts";
import { startColdReceivers } from "./cold-receivers.ts";
import { runCold, scaled } from "./cold-run.ts";

const HOSTS = 100;
const WEBHOOKS = 1_000;

/** Receivers on another continent. */
export const far = farAway("far", { delayMs: 300, inFlight: 1_200, events: 60, memory: 600 });
/** Slow receivers. */
export const farther = farAway("farther", { delayMs: 1_200, inFlight: 2_400, events: 40, memory: 700 });

/** The latency of the receivers, and the comparison. */
interface Distance {
  delayMs: number;
  /** The number of requests in flight of the bare loop. */
  inFlight: number;
  /** The number of events at pace 1, each for all webhooks. */
  events: number;
  /** The most memory, in MiB. */
  memory: number;
}

function farAway(name: string, distance: Distance): ColdScenario {
  const { delayMs, inFlight, memory } = distance;
  return {
    name,
    what: `${HOSTS} hosts that answer after ${delayMs} ms: the rate as a share of a bare loop's with ${inFlight} in flight, or of the own rate with hosts that answer at once, if that is less`,
    targets: { "": { atLeast: 0.8 }, memory: { atMost: memory } },
    async *measure(bench, pace) {
      const events = scaled(distance.events, pace);
      const count = events * WEBHOOKS;
      const load = { pace, events, settings: { DISPATCH_INTERVAL: "5s" } };
      const loop = await rateOfLoop(bench, pace, distance, count);
      yield { detail: "bare loop", unit: "POSTs/s", value: loop, count };
      const near = await runCold(bench, { ...load, what: "at once", healthy: hosts(0) });
      yield { detail: "at once", unit: "deliveries/s", value: near.rate, count };
      const run = await runCold(bench, { ...load, what: `after ${delayMs} ms`, healthy: hosts(delayMs) });
      const note = `${run.inFlight.toFixed(0)} in flight`;
      yield { detail: "", unit: "of the lower", value: run.rate / Math.min(loop, near.rate), count };
      yield { detail: `after ${delayMs} ms`, unit: "deliveries/s", value: run.rate, count, note };
      yield { detail: "memory", unit: "MiB at most", value: run.memory, count };
    },
  };
}

function hosts(delayMs: number) {
  return Array(HOSTS).fill({ status: 200, delayMs });
}

async function rateOfLoop(
  bench: ColdBench,
  pace: number,
  { delayMs, inFlight }: Distance,
  count: number,
): Promise<number> {
  await using receivers = await startColdReceivers(bench, hosts(delayMs));
  bench.group?.setPace(pace);
  await using loop = startBareLoop(bench, receivers, bench.group?.node);
  const options = { concurrency: inFlight, headers: SERVICE_HEADERS, signs: true };
  return count / (await loop.run({ ...options, requests: count }));
}
