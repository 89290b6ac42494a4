import { writeFile } from "node:fs/promises";
import path from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import pg from "pg";
import { type Db, rows } from "../../src/lib/pg/database.ts";
import { BLUE, ORANGE, type Panel, toChart } from "../parts/chart.ts";
import { warmUp } from "../parts/dispatching.ts";
import { keepPending } from "../parts/keep-pending.ts";
import { startReceivers } from "../parts/receivers.ts";
import type { Scenario } from "../parts/scenario.ts";
import { seedWebhooks } from "../parts/seeding.ts";
import { openStage, type Stage } from "../parts/stage.ts";

const WEBHOOKS = 10;
/** The queue of a webhook is refilled when it has fewer deliveries, so that the drain never waits. */
const MIN_PENDING = 8_000;
const EVERY_MS = 2_000;
/** A snapshot is held for a sixth of the time, from a third of it. */
const [HELD_FROM, HELD_UNTIL] = [1 / 3, 1 / 2];
/** The time after the snapshot's end in which the queue may still grow, as a part of the whole: 5 minutes of an hour. */
const SETTLING = 1 / 12;
const MIB = 2 ** 20;

interface Sample {
  second: number;
  /** Deliveries per second since the last sample. */
  rate: number;
  /** The size of the tables of open deliveries with their indexes, in bytes. */
  queueBytes: number;
}

const panels: readonly Panel<Sample>[] = [
  ["Deliveries per second", ["", BLUE, ({ rate }) => rate]],
  ["Size of the queue's tables and indexes, in MiB", ["", ORANGE, ({ queueBytes }) => queueBytes / MIB]],
];

/** What an open snapshot, which keeps PostgreSQL from removing dead rows, costs a full-speed drain. */
export const churn: Scenario = {
  name: "churn",
  what: "full-speed deliveries for a time (count: seconds), a sixth of it beside an open snapshot",
  count: { full: 3_600, small: 240 },
  targets: { "of it beside a snapshot": { atLeast: 0.7 }, "growth afterwards": { atMost: 1.05 } },
  comparisons: [],
  async measure(bench, count) {
    const behaviours = Array.from({ length: WEBHOOKS }, () => ({ status: 200 }));
    await using receivers = await startReceivers(bench, behaviours);
    await using stage = await openStage(bench, {}, true);
    const webhooks = await seedWebhooks(stage.db, stage.secrets, receivers.urls);
    await warmUp(stage, receivers, webhooks);
    await using queue = await keepPending(stage, {
      webhooks,
      counts: receivers.counts,
      minEach: MIN_PENDING,
    });
    const samples: Sample[] = [];
    let snapshot: pg.Client | undefined;
    try {
      const started = performance.now();
      let last = { at: started, received: await receivers.count() };
      for (let second = 0; second < count; ) {
        await Promise.race([wait(EVERY_MS, undefined, { signal: bench.stopping }), queue.failed]);
        const now = { at: performance.now(), received: await receivers.count() };
        second = (now.at - started) / 1_000;
        const rate = (1_000 * (now.received - last.received)) / (now.at - last.at);
        samples.push({ second, rate, queueBytes: await queueSize(stage.db) });
        last = now;
        bench.show.count("seconds", Math.min(count, Math.round(second)), count);
        if (!snapshot && second >= count * HELD_FROM) snapshot = await holdSnapshot(stage);
        else if (snapshot && second >= count * HELD_UNTIL) await snapshot.end();
      }
    } finally {
      await snapshot?.end();
    }
    await writeFile(
      path.join(bench.results, "churn.svg"),
      toChart("Deliveries at full speed", panels, samples),
    );
    return figuresOf(samples, count);
  },
};

function figuresOf(samples: readonly Sample[], count: number) {
  const within = (from: number, until: number) =>
    samples.filter(({ second }) => second > from * count && second <= until * count);
  const rateOf = (some: readonly Sample[]) => some.reduce((sum, { rate }) => sum + rate, 0) / some.length;
  const largest = (some: readonly Sample[]) => Math.max(...some.map(({ queueBytes }) => queueBytes));
  const before = within(HELD_FROM / 2, HELD_FROM);
  const held = within(HELD_FROM, HELD_UNTIL);
  const settled = HELD_UNTIL + SETTLING;
  return [
    { detail: "", unit: "deliveries/s", value: rateOf(before) },
    { detail: "of it beside a snapshot", unit: "ratio", value: rateOf(held) / rateOf(before) },
    {
      detail: "of it at the snapshot's end",
      unit: "ratio",
      value: rateOf(within(HELD_UNTIL - 1 / 60, HELD_UNTIL)) / rateOf(before),
    },
    { detail: "of it afterwards", unit: "ratio", value: rateOf(within(settled, 1)) / rateOf(before) },
    { detail: "queue before", unit: "MiB", value: largest(before) / MIB },
    { detail: "queue at most", unit: "MiB", value: largest(samples) / MIB },
    {
      detail: "growth afterwards",
      unit: "ratio",
      value: largest(within(settled, 1)) / largest(within(HELD_UNTIL, settled)),
    },
  ];
}

/** Opens a transaction that keeps its snapshot until its connection ends. Not from a pool, which closes idle connections. */
async function holdSnapshot({ bench, db }: Stage): Promise<pg.Client> {
  const [row] = await rows<{ name: string }>(db, "select current_database() as name");
  const address = new URL(bench.postgres.superuserUrl);
  address.pathname = `/${row?.name}`;
  const held = new pg.Client({ connectionString: address.href, application_name: "bench-snapshot" });
  await held.connect();
  await held.query("begin isolation level repeatable read");
  await held.query("select count(*) from webhooks");
  return held;
}

async function queueSize(db: Db): Promise<number> {
  const [row] = await rows<{ bytes: number }>(
    db,
    "select (pg_total_relation_size('queue') + pg_total_relation_size('retries'))::float8 as bytes",
  );
  return row?.bytes ?? 0;
}
