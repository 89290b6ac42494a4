import { type ChildProcess, spawn } from "node:child_process";
import { setPriority } from "node:os";
import { setTimeout as wait } from "node:timers/promises";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { type Db, openDatabase, rows } from "../../src/db/database.ts";
import { type Ledger as Balance, imbalance, readLedger } from "../../src/db/deliveries/ledger.ts";
import { type DatabaseGateway, startDatabaseGateway } from "../support/database-gateway.ts";
import type { ServiceProcess } from "../support/service-process.ts";
import { type OwnCluster, startOwnCluster } from "./cluster.ts";
import { type Ledger, reconcile } from "./ledger.ts";
import { checkAttempts, outcomes } from "./parts.ts";
import { FULL_SIZE, tell } from "./scale.ts";
import { type Standby, startStandby } from "./standby.ts";

vi.setConfig({ testTimeout: FULL_SIZE ? 1_800_000 : 200_000 });

/** At full size what an installation has, but for dispatch at once; otherwise short times. */
const SETTINGS = {
  RETRY_INITIAL_DELAY: "1s",
  RETRY_BACKOFF_COEFFICIENT: "2",
  ...(FULL_SIZE
    ? {
        DISPATCH_ON_PUBLISH: "true",
        DISPATCH_INTERVAL: "60s",
        HEARTBEAT_TIMEOUT: "20s",
        DELIVERY_TIMEOUT: "15s",
      }
    : {}),
};
/** Events a second, all the time. */
const RATE = FULL_SIZE ? 8 : 10;
const RECEIVERS = 5;
const WEBHOOKS = 10;
/** Long enough that faults come amid requests, in milliseconds. */
const ANSWER_MS = 100;
/** Deliveries between two faults. */
const SOME = (FULL_SIZE ? 5 : 0.5) * RATE * WEBHOOKS;
const BUSY_LOOPS = FULL_SIZE ? 4 : 0;
/** How long a worker is stopped, in milliseconds: longer than its lease. */
const STOPPED_MS = 60_000;
const TEMPORAL_AWAY_MS = 300_000;
/** What is promised: how soon everything has ended after the last fault and the last publication, in milliseconds. */
const SETTLED_MS = 180_000;
/** How often the ledger is read, in milliseconds. */
const READ_MS = FULL_SIZE ? 2_000 : 200;
/** What one worker may have sent and not recorded, rounded up; so much may a fault repeat. */
const REPEATS_A_FAULT = 200;

const KILLS = ["kill a worker", "kill an API", "kill PostgreSQL", "kill Temporal"] as const;
const FAULTS: Fault[] = FULL_SIZE
  ? [...KILLS, "stop a worker", "fail over", ...KILLS, "Temporal away", "kill a worker", "kill PostgreSQL"]
  : [...KILLS, "fail over", "kill PostgreSQL"];
type Fault = (typeof KILLS)[number] | "stop a worker" | "fail over" | "Temporal away";

let cluster: OwnCluster;
let gateway: DatabaseGateway;
let standby: Standby;
/** By way of the gateway, as the services. */
let db: Db;
/** Those that run, the one that has run longest first. */
const workers: ServiceProcess[] = [];
const apis: ServiceProcess[] = [];
const ledgers: Ledger[] = [];
const busyLoops: ChildProcess[] = [];

beforeAll(async () => {
  cluster = await startOwnCluster(async ({ postgres }) => {
    gateway = await startDatabaseGateway(postgres.url);
    return { ...SETTINGS, DATABASE_URL: gateway.url };
  });
  db = openDatabase(gateway.url, { max: 2, applicationName: "test" });
  standby = await startStandby(cluster.postgres);
  apis.push(cluster.api, await cluster.startApi());
  workers.push(...(await Promise.all([cluster.startWorker(), cluster.startWorker()])));
  for (let n = 0; n < RECEIVERS; n += 1) ledgers.push(await cluster.ledger(ANSWER_MS, answer));
  for (let n = 0; n < WEBHOOKS; n += 1) await cluster.register(`${ledgers[n % RECEIVERS]?.url}/${n}`);
});
afterAll(async () => {
  for (const loop of busyLoops) loop.kill("SIGKILL");
  preferThisProcess(false);
  // While their database is there.
  for (const { process } of workers) process.kill("SIGCONT");
  await Promise.all([...workers, ...apis].map((each) => each.end("SIGTERM")));
  await db?.destroy();
  await standby?.stop();
  await cluster?.end();
  await gateway?.close();
});

/** Eight webhooks are well; of the two others one recovers by the second request and one never does. */
const HEALTHY = "w.url ~ '/[0-7]$'";
function answer(path: string, nth: number, deliveryId: string): number {
  if (path === "/9" && isHard(deliveryId)) return 500;
  return path === "/8" && isHard(deliveryId) && nth === 1 ? 503 : 200;
}

/** One in four, or one in 256: a webhook that fails gets few requests at a time, and much has waited for it after an outage. */
function isHard(deliveryId: string): boolean {
  return FULL_SIZE ? deliveryId.endsWith("00") : /[0-3]$/.test(deliveryId);
}

const requests = () => ledgers.reduce((sum, { entries }) => sum + entries.length, 0);

/** Resolves once so many more requests have come. */
async function untilMore(deliveries: number): Promise<void> {
  const wanted = requests() + deliveries;
  await vi.waitUntil(() => requests() >= wanted, { timeout: SETTLED_MS, interval: 5 });
}

/**
 * Receivers, callers and the database's address are other machines' in earnest: the busy loops must not slow them. Only root
 * may ask for that.
 */
function preferThisProcess(isPreferred: boolean): void {
  if (FULL_SIZE && process.getuid?.() === 0) setPriority(isPreferred ? -10 : 0);
}

/** Starts a process of the service, which has the same priority as the busy loops. */
function startAmidLoad(start: () => Promise<ServiceProcess>): Promise<ServiceProcess> {
  preferThisProcess(false);
  const starting = start();
  preferThisProcess(true);
  return starting;
}

let hasFailedOver = false;

/** Causes a fault; resolves once what was killed or away is back. */
async function cause(fault: Fault): Promise<void> {
  if (fault === "kill a worker") {
    await workers.shift()?.end("SIGKILL");
    workers.push(await startAmidLoad(cluster.startWorker));
  } else if (fault === "kill an API") {
    await apis.shift()?.end("SIGKILL");
    apis.push(await startAmidLoad(cluster.startApi));
  } else if (fault === "kill PostgreSQL") {
    const postgres = hasFailedOver ? standby : cluster.postgres;
    postgres.kill();
    await postgres.restart();
  } else if (fault === "kill Temporal") {
    cluster.temporal.kill();
    await cluster.temporal.restart();
  } else if (fault === "stop a worker") {
    const stopped = workers[0] as ServiceProcess;
    stopped.process.kill("SIGSTOP");
    // The time itself is what is tested.
    await wait(STOPPED_MS);
    stopped.process.kill("SIGCONT");
  } else if (fault === "Temporal away") {
    cluster.temporal.kill();
    await wait(TEMPORAL_AWAY_MS);
    await cluster.temporal.restart();
  } else {
    cluster.postgres.kill();
    await gateway.set("refuse");
    await standby.promote();
    hasFailedOver = true;
    await gateway.leadTo(standby.url);
  }
}

/** Deliveries that have not ended, of each webhook; it does not read the log, so that it costs little. */
function openByWebhook(): Promise<{ url: string; open: number; claimed: number }[]> {
  return rows(
    db,
    `select w.url, count(*)::int as open, count(claimed_by)::int as claimed
      from (select webhook_id, claimed_by from queue union all select webhook_id, claimed_by from retries) d
        join webhooks w on w.id = d.webhook_id group by 1 order by 1`,
  );
}

/** Resolves once every delivery has come to an end. */
async function untilSettled(): Promise<void> {
  const open = () => openByWebhook().catch(() => "the database is away");
  await expect.poll(open, { timeout: SETTLED_MS, interval: 200 }).toEqual([]);
}

/** Reads the ledger again and again, also amid faults, as often as the database answers. */
function watchLedger(): { readings: () => number; wrong: Balance[]; stop(): Promise<void> } {
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
    wrong,
    async stop() {
      stopping.abort();
      await watching;
    },
  };
}

test.skipIf(process.platform === "win32")(
  "a storm of kills, stops and a failover: nothing is lost, everything ends within 3 minutes, and no healthy receiver is charged",
  async () => {
    preferThisProcess(false);
    for (let n = 0; n < BUSY_LOOPS; n += 1) busyLoops.push(spawn(process.execPath, ["-e", "for (;;);"]));
    preferThisProcess(true);
    const began = Date.now();
    const watch = watchLedger();
    const publishing = cluster.publisher.steadily(RATE);
    const faults: { fault: Fault; at: number }[] = [];
    for (const fault of FAULTS) {
      await untilMore(SOME);
      const at = Date.now();
      await cause(fault);
      const before = watch.readings();
      // The ledger must be read amid the traffic after each fault, however long a machine takes to connect again.
      await vi.waitUntil(() => watch.readings() > before, { timeout: SETTLED_MS, interval: 5 });
      await untilMore(SOME);
      faults.push({ fault, at });
      const open = (await openByWebhook()).reduce((sum, each) => sum + each.open, 0);
      tell(
        `${((Date.now() - began) / 1_000).toFixed(0)} s: ${fault} is over; open: ${open} of ` +
          `${cluster.publisher.published() * WEBHOOKS}`,
      );
    }
    await publishing.stop();
    const lastAt = Date.now();
    await untilSettled();
    const settledMs = Date.now() - lastAt;
    await watch.stop();

    const events = cluster.publisher.published();
    expect(await db("events").count()).toEqual([{ count: BigInt(events) }]);
    const last = await rows<{ id: string }>(
      db,
      "select d.id from all_deliveries d join webhooks w on w.id = d.webhook_id where w.url like '%/9'",
    );
    const failed = last.filter(({ id }) => isHard(id)).length;
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
    const counted = faults.map((fault) => ({ ...fault, repeats: 0 }));
    for (const { at } of repeats) {
      const culprit = counted.findLast((fault) => fault.at <= at + 3_000);
      if (culprit) culprit.repeats += 1;
    }
    for (const { fault, at, repeats: n } of counted)
      tell(`${((at - began) / 1_000).toFixed(0)} s: ${fault}: ${n} requests repeated`);
    tell(
      `${events * WEBHOOKS} deliveries, ${faults.length} faults in ${((lastAt - began) / 1_000).toFixed(0)} s, all ended ` +
        `${(settledMs / 1_000).toFixed(1)} s after; ${recorded} attempts recorded, ${requests()} requests received; ` +
        `the ledger was read ${watch.readings()} times`,
    );
    expect(counted.filter((fault) => fault.repeats > REPEATS_A_FAULT)).toEqual([]);
    expect(settledMs).toBeLessThan(SETTLED_MS);
  },
);
