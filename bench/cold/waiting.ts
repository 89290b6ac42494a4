import { setTimeout as wait } from "node:timers/promises";
import { webhookUrls } from "../parts/fan-out.ts";
import { processorTime } from "../parts/processes.ts";
import type { Receivers } from "../parts/receivers.ts";
import type { ColdBench, ColdScenario } from "./cold-bench.ts";
import { startColdReceivers } from "./cold-receivers.ts";
import { type ColdService, startColdService } from "./cold-service.ts";
import { FAST_RETRIES } from "./isolation.ts";

/** Webhooks that fail, with a number of events for each. */
interface Failing {
  webhooks: number;
  events: number;
  /** The time between two attempts of a delivery, in seconds. */
  spreadS: number;
}

/** Both have about 17 attempts a second. The fewer webhooks have two deliveries each, so that their retries last longer. */
const FAILING: readonly Failing[] = [
  { webhooks: 300, events: 2, spreadS: 35 },
  { webhooks: 3_000, events: 1, spreadS: 176 },
];
const HOSTS = 100;
const MEASURED_S = 30;
/** The time in which a service comes to rest before a measurement, in seconds. */
const SETTLE_S = 12;
const POLL_MS = 200;

/** What is used while nothing but retries happens. The receivers' Retry-After spreads the retries evenly. */
export const waiting: ColdScenario = {
  name: "waiting",
  what: "300, then 3,000 failing webhooks with 17 attempts a second in all: commits, and processor time of Temporal above idle",
  once: true,
  targets: Object.fromEntries(
    FAILING.flatMap(({ webhooks }) => [
      [`${webhooks} commits`, { atMost: 60 }],
      [`${webhooks} Temporal`, { atMost: 0.1 }],
    ]),
  ),
  async *measure(bench, pace) {
    let idle: Use | undefined;
    for (const { webhooks, events, spreadS } of FAILING) {
      await using receivers = await startColdReceivers(bench, Array(HOSTS).fill({ status: 503, spreadS }));
      await using service = await startColdService(bench, FAST_RETRIES);
      if (!idle) {
        bench.group?.setPace(pace);
        await rest(bench, "idle", SETTLE_S);
        idle = await measureUse(bench, "idle", service, receivers);
        bench.group?.setPace(1);
        yield { detail: "idle commits", unit: "per second", value: idle.commits };
        yield { detail: "idle Temporal", unit: "cores", value: idle.temporal };
      }
      await service.register(webhookUrls(receivers.urls, webhooks / HOSTS));
      bench.group?.setPace(pace);
      await service.publish(events);
      const what = `first attempts of ${webhooks}`;
      for (let count = 0; count < webhooks * events; count = await receivers.count()) {
        bench.show.count(what, count, webhooks * events);
        await wait(POLL_MS, undefined, { signal: bench.stopping });
      }
      await rest(bench, "settling", SETTLE_S);
      const use = await measureUse(bench, `${webhooks} failing`, service, receivers);
      const note = `${use.attempts.toFixed(1)} attempts/s`;
      yield { detail: `${webhooks} commits`, unit: "per second", value: use.commits, count: webhooks, note };
      yield {
        detail: `${webhooks} Temporal`,
        unit: "cores above idle",
        value: Math.max(0, use.temporal - idle.temporal),
        count: webhooks,
      };
    }
  },
};

/** What is used in a second. */
interface Use {
  /** Transactions in all databases. */
  commits: number;
  /** Processor time of Temporal's server, in cores. */
  temporal: number;
  /** Requests at the receivers. */
  attempts: number;
}

async function measureUse(
  bench: ColdBench,
  what: string,
  service: ColdService,
  receivers: Receivers,
): Promise<Use> {
  const read = async () => ({
    at: performance.now(),
    commits: await service.commits("all"),
    temporalUs: processorTime(service.temporalPid),
    attempts: await receivers.count(),
  });
  const before = await read();
  await rest(bench, what, MEASURED_S);
  const after = await read();
  const seconds = (after.at - before.at) / 1_000;
  return {
    commits: (after.commits - before.commits) / seconds,
    temporal: (after.temporalUs - before.temporalUs) / 1_000_000 / seconds,
    attempts: (after.attempts - before.attempts) / seconds,
  };
}

/** Waits some seconds, which are shown. */
async function rest(bench: ColdBench, what: string, seconds: number): Promise<void> {
  for (let second = 0; second < seconds; second += 1) {
    bench.show.count(`${what}, seconds`, second, seconds);
    await wait(1_000, undefined, { signal: bench.stopping });
  }
}
