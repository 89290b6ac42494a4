import type { Bench } from "../parts/bench.ts";
import { databaseTime } from "../parts/database-work.ts";
import { dispatch, warmUp } from "../parts/dispatching.ts";
import { processorTime } from "../parts/processes.ts";
import { startReceivers } from "../parts/receivers.ts";
import type { Measurement, Scenario } from "../parts/scenario.ts";
import { seedPending, seedWebhooks } from "../parts/seeding.ts";
import { openStage } from "../parts/stage.ts";

/** The interval of reading metrics, in milliseconds. */
const SCRAPE_MS = 5_000;

/** A queue for one receiver, sent, signed and recorded by one service process. */
export const drain: Scenario = {
  name: "drain",
  what: "pending deliveries to one host, from the schedule's trigger to the last one recorded",
  count: { full: 100_000, small: 20_000 },
  targets: { "of limit": { atLeast: 0.45 }, "of limit-alike": { atLeast: 0.48 } },
  comparisons: ["limit", "limit-alike"].map((loop) => ({
    detail: `of ${loop}`,
    unit: "ratio",
    with: loop,
    value: (own, bare) => own / bare,
  })),
  measure: (bench, count) => measureDrain(bench, { count }),
};

interface DrainOptions {
  count: number;
  settings?: Record<string, string>;
  traced?: number;
}

/**
 * Drains a queue for one receiver.
 *
 * @param options.count the number of deliveries
 * @param options.settings environment variables of the service; none unless given
 * @param options.traced the part of the events whose trace is recorded; without it, none has a trace
 */
export async function measureDrain(
  bench: Bench,
  { count, settings = {}, traced }: DrainOptions,
): Promise<Measurement[]> {
  await using receivers = await startReceivers(bench, [{ status: 200 }]);
  await using stage = await openStage(bench, settings);
  const webhooks = await seedWebhooks(stage.db, stage.secrets, [`${receivers.urls[0]}/hooks`]);
  await warmUp(stage, receivers, webhooks);
  await seedPending(stage, { events: count, webhooks, ...(traced === undefined ? {} : { traced }) });
  using _scraping = scrape(stage.service.metricsPort);
  const before = { own: processorTime(stage.deliveryPid), database: await databaseTime(stage.db) };
  const seconds = await dispatch(stage, { what: "delivering", requests: count, receivers });
  const own = processorTime(stage.deliveryPid) - before.own;
  const database = (await databaseTime(stage.db)) - before.database;
  return [
    { detail: "", unit: "deliveries/s", value: count / seconds },
    { detail: "processor", unit: "us of the service", value: own / count },
    { detail: "database", unit: "us of PostgreSQL", value: database / count },
  ];
}

/** Reads the metrics at intervals, if the service has a port for them. */
function scrape(port: number): Disposable {
  const read = () => void fetch(`http://127.0.0.1:${port}/metrics`).then((response) => response.text());
  const timer = port === 0 ? undefined : setInterval(read, SCRAPE_MS);
  return { [Symbol.dispose]: () => clearInterval(timer) };
}
