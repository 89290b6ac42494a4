import { type ChildProcess, spawn } from "node:child_process";
import { setPriority } from "node:os";
import { setTimeout as wait } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import { type Db, openDatabase, rows } from "../../src/lib/pg/database.ts";
import { type DatabaseGateway, startDatabaseGateway } from "../support/database-gateway.ts";
import { type Ledger as Balance, imbalance, readLedger } from "../support/ledger.ts";
import type { ServiceProcess } from "../support/service-process.ts";
import { until } from "../support/wait.ts";
import { startOwnCluster } from "./cluster.ts";
import { type Ledger, reconcile } from "./ledger.ts";
import { checkAttempts, outcomes, untilAllFinal, untilReady } from "./parts.ts";
import { FULL_SIZE, tell } from "./scale.ts";
import { startStandby } from "./standby.ts";

const KILLS = ["kill a worker", "kill an API", "kill PostgreSQL", "kill Temporal"] as const;
type Fault = (typeof KILLS)[number] | "stop a worker" | "fail over" | "Temporal away";

interface Storm {
  what: string;
  faults: Fault[];
  settings: Record<string, string>;
  /** The number of APIs, and of workers. */
  each: number;
  /** How long receivers take to answer, in milliseconds, so that faults come amid requests. */
  answerMs: number;
  /** Deliveries before and after each fault. */
  some: number;
  /** Events a second, all the time; or at once before each fault. */
  rate?: number;
  burst?: number;
  busyLoops: number;
  /** Whether a delivery to one of the two failing webhooks fails: a webhook that fails gets few requests at a time. */
  isHard: RegExp;
}

const FAST_RETRIES = { RETRY_INITIAL_DELAY: "1s", RETRY_BACKOFF_COEFFICIENT: "2" };
const AS_INSTALLED = {
  DISPATCH_ON_PUBLISH: "true",
  DISPATCH_INTERVAL: "60s",
  HEARTBEAT_TIMEOUT: "20s",
  DELIVERY_TIMEOUT: "15s",
};
/** At full size what an installation has, but for dispatch at once. */
const FULL_STORMS: Storm[] = [
  {
    what: "faults of all kinds under load",
    faults: [
      ...KILLS,
      "stop a worker",
      "fail over",
      ...KILLS,
      "Temporal away",
      ...KILLS.slice(0, 1),
      KILLS[2],
    ],
    settings: { ...FAST_RETRIES, ...AS_INSTALLED },
    each: 2,
    answerMs: 100,
    some: 400,
    rate: 8,
    busyLoops: 4,
    isHard: /00$/,
  },
  {
    what: "kills amid bursts",
    faults: [...KILLS, ...KILLS, ...KILLS],
    settings: {},
    each: 2,
    answerMs: 20,
    some: 2_800,
    burst: 840,
    busyLoops: 0,
    isHard: /0$/,
  },
];
const SMALL_STORM: Storm = {
  what: "a fault of each kind",
  faults: [...KILLS, "fail over"],
  settings: { ...FAST_RETRIES, DISPATCH_INTERVAL: "3s" },
  each: 1,
  answerMs: 100,
  some: 15,
  rate: 2,
  busyLoops: 0,
  isHard: /[0-3]$/,
};
const RECEIVERS = 5;
const WEBHOOKS = 10;
/** Eight webhooks are well; of the two others one recovers by the second request and one never does. */
const HEALTHY = "w.url ~ '/[0-7]$'";
/** How long a worker is stopped, in milliseconds: longer than its lease. */
const STOPPED_MS = 60_000;
const TEMPORAL_AWAY_MS = 300_000;
/** What is promised: how soon everything has ended after the last fault and the last publication, in milliseconds. */
const SETTLED_MS = 180_000;
/** How often the ledger is read, in milliseconds. */
const READ_MS = FULL_SIZE ? 2_000 : 500;
/** What one worker may have sent and not recorded, rounded up; so much may a fault repeat. */
const REPEATS_A_FAULT = 200;

/**
 * Receivers, callers and the database's address are other machines' in earnest: the busy loops must not slow them. Only root
 * may ask for that.
 */
function preferThisProcess(isPreferred: boolean): void {
  if (FULL_SIZE && process.getuid?.() === 0) setPriority(isPreferred ? -10 : 0);
}

/** Starts a process that has the same priority as the busy loops. */
function amidLoad<T>(start: () => T): T {
  preferThisProcess(false);
  const started = start();
  preferThisProcess(true);
  return started;
}

/** Reads the ledger again and again, also amid faults, as often as the database answers. */
function watchLedger(db: Db) {
  const stopping = new AbortController();
  const wrong: Balance[] = [];
  let readings = 0;
  const watching = (async () => {
    while (!stopping.signal.aborted) {
      const ledger = await readLedger(db).catch(() => undefined);
      if (ledger) readings += 1;
      if (ledger && imbalance(ledger) !== 0n) wrong.push(ledger);
      await wait(READ_MS, undefined, { signal: stopping.signal }).catch(() => {});
    }
  })();
  return {
    readings: () => readings,
    /** Those that did not balance. */
    wrong,
    async stop() {
      stopping.abort();
      await watching;
    },
  };
}

test.skipIf(process.platform === "win32").each(FULL_SIZE ? FULL_STORMS : [SMALL_STORM])(
  "a storm of $what: nothing is lost, everything ends, readiness tells of outages, and no healthy receiver is charged",
  async (storm) => {
    let gateway!: DatabaseGateway;
    const cluster = await startOwnCluster(async ({ postgres }) => {
      gateway = await startDatabaseGateway(postgres.url);
      return { ...storm.settings, DATABASE_URL: gateway.url };
    });
    onTestFinished(async () => {
      await cluster.end();
      await gateway.close();
    });
    /** By way of the gateway, as the services. */
    const db = openDatabase(gateway.url, { max: 2, applicationName: "test" });
    const standby = await startStandby(cluster.postgres);
    /** Those that run, the one that has run longest first. */
    const [apis, workers]: [ServiceProcess[], ServiceProcess[]] = [[cluster.api], []];
    const ledgers: Ledger[] = [];
    const busyLoops: ChildProcess[] = [];
    onTestFinished(async () => {
      for (const loop of busyLoops) loop.kill("SIGKILL");
      preferThisProcess(false);
      await db.destroy();
      // While their database is there.
      for (const service of [...workers, ...apis]) await service.end("SIGKILL");
      await standby.stop();
    });

    function answer(path: string, nth: number, deliveryId: string): number {
      if (path === "/9" && storm.isHard.test(deliveryId)) return 500;
      return path === "/8" && storm.isHard.test(deliveryId) && nth === 1 ? 503 : 200;
    }

    const requests = () => ledgers.reduce((sum, { entries }) => sum + entries.length, 0);

    /** Resolves once so many more requests have come. */
    async function untilMore(deliveries: number): Promise<void> {
      const wanted = requests() + deliveries;
      await until(() => requests() >= wanted);
    }

    let hasFailedOver = false;

    /** What causes each fault; resolves once what was killed or away is back. */
    const causes: Record<Fault, () => Promise<void>> = {
      async "kill a worker"() {
        await workers.shift()?.end("SIGKILL");
        workers.push(await amidLoad(cluster.startWorker));
      },
      async "kill an API"() {
        await apis.shift()?.end("SIGKILL");
        apis.push(await amidLoad(cluster.startApi));
      },
      async "kill PostgreSQL"() {
        const postgres = hasFailedOver ? standby : cluster.postgres;
        const refused = cluster.publisher.repeated();
        postgres.kill();
        const publishing = cluster.publisher.publish(1);
        await until(() => cluster.publisher.repeated() > refused);
        await untilReady([...apis, ...workers], 503);
        await postgres.restart();
        await publishing;
        await untilReady([...apis, ...workers], 200);
      },
      async "kill Temporal"() {
        cluster.temporal.kill();
        await untilReady(workers, 503);
        // Publishing goes on.
        await cluster.publisher.publish(1);
        await cluster.temporal.restart();
        await untilReady(workers, 200);
      },
      async "Temporal away"() {
        cluster.temporal.kill();
        await wait(TEMPORAL_AWAY_MS);
        await cluster.temporal.restart();
      },
      async "stop a worker"() {
        const [stopped] = workers;
        stopped?.process.kill("SIGSTOP");
        // The time itself is what is tested.
        await wait(STOPPED_MS);
        stopped?.process.kill("SIGCONT");
      },
      async "fail over"() {
        cluster.postgres.kill();
        await gateway.set("refuse");
        await standby.promote();
        hasFailedOver = true;
        await gateway.leadTo(standby.url);
      },
    };

    while (apis.length < storm.each) apis.push(await cluster.startApi());
    while (workers.length < storm.each) workers.push(await cluster.startWorker());
    for (let n = 0; n < RECEIVERS; n += 1) ledgers.push(await cluster.ledger(storm.answerMs, answer));
    for (let n = 0; n < WEBHOOKS; n += 1) await cluster.register(`${ledgers[n % RECEIVERS]?.url}/${n}`);
    const { publisher } = cluster;
    for (let n = 0; n < storm.busyLoops; n += 1)
      busyLoops.push(amidLoad(() => spawn(process.execPath, ["-e", "for (;;);"])));
    const watch = watchLedger(db);
    const publishing = storm.rate ? publisher.steadily(storm.rate) : undefined;
    const faults: { fault: Fault; at: number }[] = [];
    for (const fault of storm.faults) {
      const burst = publisher.publish(storm.burst ?? 0);
      await untilMore(storm.some);
      faults.push({ fault, at: Date.now() });
      await causes[fault]();
      const before = watch.readings();
      // The ledger must be read amid the traffic after each fault, however long a machine takes to connect again.
      await until(() => watch.readings() > before);
      await untilMore(storm.some);
      await burst;
      tell(`${fault} is over; ${publisher.published()} events published`);
    }
    await publishing?.stop();
    const lastAt = Date.now();
    await untilAllFinal(db);
    const settledMs = Date.now() - lastAt;
    await watch.stop();

    const events = publisher.published();
    expect(await db("events").count()).toEqual([{ count: BigInt(events) }]);
    const last = await rows<{ id: string }>(
      db,
      "select d.id from all_deliveries d join webhooks w on w.id = d.webhook_id where w.url like '%/9'",
    );
    const failed = last.filter(({ id }) => storm.isHard.test(id)).length;
    expect(failed).toBeGreaterThan(0);
    const sums: Record<string, number> = {};
    for (const { state, n } of await outcomes(db)) sums[state] = (sums[state] ?? 0) + n;
    expect(sums).toEqual({ delivered: events * WEBHOOKS - failed, failed });
    expect(await db("all_deliveries").where({ reason: "interrupted" })).toEqual([]);
    await checkAttempts(db);
    expect(watch.wrong).toEqual([]);
    // Only failures and timeouts, which are recorded, make the limits of a receiver smaller.
    const charged = await rows(
      db,
      `select a.number, a.status, a.error, a.started, w.url from all_attempts a
          join all_deliveries d on d.id = a.delivery_id join webhooks w on w.id = d.webhook_id
          where ${HEALTHY} and a.status is distinct from 200`,
    );
    expect(charged).toEqual([]);

    const { recorded, repeats, invented } = await reconcile(db, ledgers);
    expect(invented).toBe(0);
    const repeatsOf = faults.map(({ fault, at }, n) => {
      const nextAt = faults[n + 1]?.at ?? Number.POSITIVE_INFINITY;
      // What was sent a moment before the fault is repeated because of it.
      return {
        fault,
        repeats: repeats.filter((one) => one.at + 3_000 >= at && one.at + 3_000 < nextAt).length,
      };
    });
    for (const { fault, repeats: n } of repeatsOf) tell(`${fault}: ${n} requests repeated`);
    tell(
      `${events * WEBHOOKS} deliveries, ${faults.length} faults, all ended ${(settledMs / 1_000).toFixed(1)} s after; ` +
        `${recorded} attempts recorded, ${requests()} requests received; the ledger was read ${watch.readings()} times`,
    );
    expect(repeatsOf.filter((fault) => fault.repeats > REPEATS_A_FAULT)).toEqual([]);
    if (FULL_SIZE) expect(settledMs).toBeLessThan(SETTLED_MS);
  },
);
