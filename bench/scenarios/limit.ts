import { startChild } from "../parts/child.ts";
import { payload } from "../parts/payload.ts";
import { startReceivers } from "../parts/receivers.ts";
import type { Scenario } from "../parts/scenario.ts";
import type { LimitMethods } from "../processes/limit.ts";

const CONCURRENCIES = [16, 32, 64, 128];
/** Requests by which the best concurrency is found; they are the warm-up too. */
const PROBE = 4_000;

/** How fast this machine can send and receive at all: the loop that any sender contains, and nothing else. */
export const limit: Scenario = {
  name: "limit",
  what: "bare undici keep-alive POST loop to the HTTPS receiver, no database",
  count: { full: 100_000, small: 40_000 },
  targets: {},
  comparisons: [],
  async measure(bench, count) {
    await using receivers = await startReceivers(bench, [{ status: 200 }]);
    await using child = startChild<LimitMethods>(bench, "limit.ts");
    const loop = { origin: receivers.urls[0] as string, body: payload(1) };
    const requests = Math.min(PROBE, count);
    await child.call("run", { ...loop, requests, concurrency: 64 });
    let best = { concurrency: 0, seconds: Number.POSITIVE_INFINITY };
    for (const concurrency of CONCURRENCIES) {
      const seconds = await child.call("run", { ...loop, requests, concurrency });
      if (seconds < best.seconds) best = { concurrency, seconds };
    }
    const seconds = await child.call("run", { ...loop, requests: count, concurrency: best.concurrency });
    return [
      { detail: "", unit: "POSTs/s", value: count / seconds, note: `${best.concurrency} at once was best` },
    ];
  },
};
