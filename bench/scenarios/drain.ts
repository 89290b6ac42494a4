import type { Bench } from "../parts/bench.ts";
import { databaseTime } from "../parts/database-work.ts";
import { dispatch, untilRunsClosed, warmUp } from "../parts/dispatching.ts";
import { REGISTERED, REGISTERED_SETTINGS } from "../parts/payload.ts";
import { processorTime } from "../parts/processes.ts";
import { type Receivers, startReceivers } from "../parts/receivers.ts";
import type { Measurement, Scenario } from "../parts/scenario.ts";
import { clearDeliveries, type Pending, seedPending, seedWebhooks } from "../parts/seeding.ts";
import { openStage, type Stage } from "../parts/stage.ts";

/** The interval of reading metrics, in milliseconds. */
const SCRAPE_MS = 5_000;

/** The most deliveries of each queue that compares event types. */
const MAX_COMPARED = 20_000;

/** A queue for one receiver, sent, signed and recorded by one service process. */
export const drain: Scenario = {
  name: "drain",
  what: "pending deliveries to one host, from the schedule's trigger to the last one recorded",
  count: { full: 100_000, small: 20_000 },
  targets: {
    "of limit": { atLeast: 0.45 },
    "of limit-alike": { atLeast: 0.48 },
    "registered event type, of the built-in one": { atLeast: 0.95 },
  },
  comparisons: ["limit", "limit-alike"].map((loop) => ({
    detail: `of ${loop}`,
    unit: "ratio",
    with: loop,
    value: (own, bare) => own / bare,
  })),
  measure: (bench, count) => measureDrain(bench, { count, registered: true }),
};

interface DrainOptions {
  count: number;
  settings?: Record<string, string>;
  traced?: number;
  registered?: boolean;
}

/**
 * Drains a queue for one receiver.
 *
 * @param options.count the number of deliveries
 * @param options.settings environment variables of the service; none unless given
 * @param options.traced the part of the events whose trace is recorded; without it, none has a trace
 * @param options.registered whether queues of a registered event type are drained, too, in turn with some of the built-in one. Defaults
 *   to false
 */
export async function measureDrain(
  bench: Bench,
  { count, settings = {}, traced, registered = false }: DrainOptions,
): Promise<Measurement[]> {
  await using receivers = await startReceivers(bench, [{ status: 200 }]);
  await using stage = await openStage(bench, registered ? { ...settings, ...REGISTERED_SETTINGS } : settings);
  const urls = [`${receivers.urls[0]}/hooks`];
  const webhooks = await seedWebhooks(stage.db, stage.secrets, urls);
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
    ...(registered
      ? [await compareTypes(stage, { receivers, urls, webhooks, events: Math.min(count, MAX_COMPARED) })]
      : []),
  ];
}

/** Compares the rate of a registered event type with that of the built-in one, in turn. */
async function compareTypes(
  stage: Stage,
  {
    receivers,
    urls,
    webhooks,
    events,
  }: { receivers: Receivers; urls: string[]; webhooks: bigint[]; events: number },
): Promise<Measurement> {
  const registered = await seedWebhooks(stage.db, stage.secrets, urls, REGISTERED.process);
  async function seconds(pending: Pick<Pending, "webhooks" | "process">): Promise<number> {
    await untilRunsClosed(stage);
    await clearDeliveries(stage.db);
    await seedPending(stage, { ...pending, events });
    return dispatch(stage, { what: "delivering", requests: events, receivers });
  }
  const ofRegistered = () => seconds({ webhooks: registered, process: REGISTERED.process });
  const ofBuiltIn = () => seconds({ webhooks });
  const [first, second, third, fourth] = [
    await ofBuiltIn(),
    await ofRegistered(),
    await ofRegistered(),
    await ofBuiltIn(),
  ];
  return {
    detail: "registered event type, of the built-in one",
    unit: "ratio",
    value: (first + fourth) / (second + third),
    count: events,
  };
}

/** Reads the metrics at intervals, if the service has a port for them. */
function scrape(port: number): Disposable {
  const read = () => void fetch(`http://127.0.0.1:${port}/metrics`).then((response) => response.text());
  const timer = port === 0 ? undefined : setInterval(read, SCRAPE_MS);
  return { [Symbol.dispose]: () => clearInterval(timer) };
}
