import { startBareLoop, startFastReceivers } from "../parts/bare-loop.ts";
import type { Scenario } from "../parts/scenario.ts";

const CONCURRENCIES = [16, 32, 64, 128];
/** The number of requests for finding the best concurrency, which also warm up. */
const PROBE = 4_000;

/** The maximum rate of this machine: a loop that only sends and receives. */
export const limit: Scenario = {
  name: "limit",
  what: "bare undici keep-alive POST loop to the HTTPS receiver, no database",
  count: { full: 100_000, small: 40_000 },
  targets: {},
  comparisons: [],
  async measure(bench, count) {
    await using receivers = await startFastReceivers(bench, 1);
    await using loop = startBareLoop(bench, receivers);
    const requests = Math.min(PROBE, count);
    await loop.run({ requests, concurrency: 64 });
    let best = { concurrency: 0, seconds: Number.POSITIVE_INFINITY };
    for (const concurrency of CONCURRENCIES) {
      const seconds = await loop.run({ requests, concurrency });
      if (seconds < best.seconds) best = { concurrency, seconds };
    }
    const seconds = await loop.run({ requests: count, concurrency: best.concurrency });
    return [
      { detail: "", unit: "POSTs/s", value: count / seconds, note: `${best.concurrency} at once was best` },
    ];
  },
};
