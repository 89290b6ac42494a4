import { writeFile } from "node:fs/promises";
import path from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { type Db, rows } from "../../src/lib/pg/database.ts";
import { BLUE, ORANGE, type Panel, toChart } from "../parts/chart.ts";
import { startChild } from "../parts/child.ts";
import { lastRecorded } from "../parts/dispatching.ts";
import { memoryOfFamily, openFilesOfFamily } from "../parts/processes.ts";
import { startReceivers } from "../parts/receivers.ts";
import type { Measurement, Scenario } from "../parts/scenario.ts";
import { seedWebhooks } from "../parts/seeding.ts";
import { openStage, type Stage } from "../parts/stage.ts";
import type { PublisherMethods } from "../processes/publisher.ts";

const WEBHOOKS = 10;
const FAILING_PART = 0.01;
const WARM_UP_EVENTS = 500;
/** The events from which the maximum rate is measured. */
const EVENTS_AT_MOST = 6_000;
const PART_OF_MAXIMUM = 0.5;
const EVERY_MS = 5_000;
const MIB = 2 ** 20;

interface Sample {
  second: number;
  /** Resident memory of the service's processes, in bytes. */
  memory: number;
  /** Connections of the service's processes to receivers. */
  connections: number;
  /** All other files and sockets of the service's processes. */
  others: number;
  /** Sessions of the service in PostgreSQL. */
  sessions: number;
  /** The size of the tables of open deliveries with their indexes, in bytes. */
  queueBytes: number;
  /** The 99th percentile of the event loops' delay since the last sample, in milliseconds; of the slower process. */
  delay: number;
}

const figures: readonly [name: string, unit: string, of: (sample: Sample) => number][] = [
  ["memory", "MiB", ({ memory }) => memory / MIB],
  ["connections to receivers", "", ({ connections }) => connections],
  ["other files and sockets", "", ({ others }) => others],
  ["database sessions", "", ({ sessions }) => sessions],
  ["queue", "MiB", ({ queueBytes }) => queueBytes / MIB],
  ["event loop delay", "ms", ({ delay }) => delay],
];

const panels: readonly Panel<Sample>[] = figures.map(([name, unit, of], n) => [
  `${name.charAt(0).toUpperCase()}${name.slice(1)}${unit && `, in ${unit}`}`,
  ["", n % 2 === 0 ? BLUE : ORANGE, of],
]);

/** Whether anything grows while the service publishes and delivers at half of its maximum rate. */
export const soak: Scenario = {
  name: "soak",
  what: "publishing and delivering at half of the maximum rate for a time (count: seconds), 1 % failing",
  count: { full: 3_600, small: 120 },
  targets: {
    "of what is published": { atLeast: 0.98 },
    ...Object.fromEntries(figures.map(([name]) => [`${name}, growth`, { atMost: 1.1 }])),
  },
  comparisons: [],
  async measure(bench, count) {
    const behaviours = Array.from({ length: WEBHOOKS }, () => ({ status: 200, failingPart: FAILING_PART }));
    await using receivers = await startReceivers(bench, behaviours);
    const settings = { METRICS_PORT: "0", RETRY_INITIAL_DELAY: "5s", RETRY_BACKOFF_COEFFICIENT: "2" };
    await using stage = await openStage(bench, { ...settings, DISPATCH_ON_PUBLISH: "true" }, true);
    await using publisher = startChild<PublisherMethods>(bench, "publisher.ts");
    await seedWebhooks(stage.db, stage.secrets, receivers.urls);
    const target = { grpcUrl: stage.service.grpcUrl, key: stage.adminKey };
    const publishAtOnce = (events: number) => publisher.call("unary", { ...target, events, concurrency: 64 });
    await publishAtOnce(WARM_UP_EVENTS);
    await lastRecorded(stage, undefined);

    const before = await receivers.count();
    const started = Date.now();
    await publishAtOnce(EVENTS_AT_MOST);
    while ((await receivers.count()) - before < EVENTS_AT_MOST * WEBHOOKS)
      await wait(100, undefined, { signal: bench.stopping });
    const maximum = EVENTS_AT_MOST / ((Date.now() - started) / 1_000);
    await lastRecorded(stage, undefined);

    const perSecond = Math.max(1, Math.round(maximum * PART_OF_MAXIMUM));
    const publishing = publisher.call("paced", { ...target, perSecond, seconds: count, firstOrder: 1 });
    // The rest of what was published is not awaited: nothing after the last sample may lose the figures of an hour.
    const ports = new Set(receivers.urls.map((url) => Number(new URL(url).port)));
    const endedBefore = await countEnded(stage.db);
    const from = performance.now();
    const samples = await sample(stage, ports, count, publishing);
    const rate = ((await countEnded(stage.db)) - endedBefore) / ((performance.now() - from) / 1_000);
    publishing.catch(() => {});
    await writeFile(path.join(bench.results, "soak-samples.json"), JSON.stringify(samples));
    await writeFile(
      path.join(bench.results, "soak.svg"),
      toChart("At half of the maximum rate", panels, samples),
    );
    return [
      { detail: "", unit: "deliveries/s", value: rate },
      { detail: "of what is published", unit: "ratio", value: rate / (perSecond * WEBHOOKS) },
      ...figures.flatMap(([name, unit, of]) => growthOf(name, unit, samples.map(of))),
    ];
  },
};

/** The last quarter's median beside that of the second quarter. The first quarter is left to warm up. */
function growthOf(name: string, unit: string, values: readonly number[]): Measurement[] {
  const quarter = (n: number) =>
    values
      .slice(Math.floor((values.length * n) / 4), Math.ceil((values.length * (n + 1)) / 4))
      .toSorted((one, other) => one - other);
  const medianOf = (sorted: readonly number[]) => sorted[sorted.length >> 1] as number;
  const last = medianOf(quarter(3));
  return [
    { detail: name, unit, value: last },
    { detail: `${name}, growth`, unit: "ratio", value: last / medianOf(quarter(1)) },
  ];
}

async function sample(
  stage: Stage,
  receiverPorts: ReadonlySet<number>,
  count: number,
  publishing: Promise<unknown>,
): Promise<Sample[]> {
  const { bench, service } = stage;
  const samples: Sample[] = [];
  const started = performance.now();
  for (let second = 0; second < count; ) {
    // A publisher that fails ends the measurement.
    await Promise.race([wait(EVERY_MS, undefined, { signal: bench.stopping }), publishing]);
    second = (performance.now() - started) / 1_000;
    samples.push({
      second,
      memory: memoryOfFamily(service.pid),
      ...openFilesOfFamily(service.pid, receiverPorts),
      ...(await databaseUse(stage.db)),
      delay: await eventLoopDelay(service.metricsPort),
    });
    bench.show.count("seconds", Math.min(count, Math.round(second)), count);
  }
  return samples;
}

async function countEnded(db: Db): Promise<number> {
  const [row] = await rows<{ ended: number }>(db, "select count(*)::int as ended from deliveries");
  return row?.ended ?? 0;
}

async function databaseUse(db: Db): Promise<{ sessions: number; queueBytes: number }> {
  const [row] = await rows<{ sessions: number; bytes: number }>(
    db,
    `select (select count(*)::int from pg_stat_activity
        where datname = current_database() and application_name <> 'bench') as sessions,
      (pg_total_relation_size('queue') + pg_total_relation_size('retries'))::float8 as bytes`,
  );
  return { sessions: row?.sessions ?? 0, queueBytes: row?.bytes ?? 0 };
}

/** In milliseconds, of the process with the longest. */
async function eventLoopDelay(metricsPort: number): Promise<number> {
  const text = await (await fetch(`http://127.0.0.1:${metricsPort}/metrics`)).text();
  const seconds = [...text.matchAll(/^nodejs_eventloop_delay_p99\S* (\S+)/gm)].map(([, value]) =>
    Number(value),
  );
  if (seconds.length === 0) throw new Error("/metrics has no nodejs_eventloop_delay_p99");
  return 1_000 * Math.max(...seconds);
}
