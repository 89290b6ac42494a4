import { expect, onTestFinished, test } from "vitest";
import { openDatabase, rows } from "../../src/lib/pg/database.ts";
import { type DatabaseGateway, startDatabaseGateway } from "../support/database-gateway.ts";
import type { ServiceProcess } from "../support/service-process.ts";
import { until } from "../support/wait.ts";
import { type Cluster, startCluster, startOwnCluster } from "./cluster.ts";
import { checkAttempts, outcomes, untilAllFinal, untilReady } from "./parts.ts";
import { FULL_SIZE, tell } from "./scale.ts";
import { startStandby } from "./standby.ts";

/** What is published each second, before, while and after nothing can be written. */
const RATE = FULL_SIZE ? 50 : 5;
/** The maximum length of a log line about the database, in characters. */
const MAX_LINE = 700;

/** A cluster with a worker and a webhook, and events published steadily. */
async function amidTraffic(cluster: Cluster) {
  const worker = await cluster.startWorker();
  const { url } = await cluster.ledger(0);
  await cluster.register(url);
  const { publisher } = cluster;
  const publishing = publisher.steadily(RATE);
  await publisher.publish(RATE);
  const services = [cluster.api, worker];
  return {
    /** Resolves once readiness tells that nothing can be written, and calls have been refused. */
    async untilReadOnly() {
      const refused = publisher.repeated();
      await untilReady(services, 503);
      await until(async () => (await reasonsOf(cluster.api)).includes("the database takes no writes"));
      await until(() => publisher.repeated() > refused + RATE);
    },
    /** Resolves once everything published is delivered, and shows in how many seconds publishing worked again. */
    async untilDelivered() {
      const since = performance.now();
      await publisher.publish(RATE);
      const publishes = (performance.now() - since) / 1_000;
      await untilReady(services, 200);
      const isReady = (performance.now() - since) / 1_000;
      await publishing.stop();
      const db = cluster.db;
      await untilAllFinal(db);
      tell(`published after ${publishes.toFixed(1)} s, ready after ${isReady.toFixed(1)} s`);
      const n = BigInt(publisher.published());
      expect(await rows(db, "select count(*) as n from events")).toEqual([{ n }]);
      expect(await outcomes(db)).toEqual([{ state: "delivered", attempts: 1, n: Number(n) }]);
      await checkAttempts(db);
    },
  };
}

async function reasonsOf({ httpPort }: ServiceProcess): Promise<string[]> {
  const answer = await fetch(`http://127.0.0.1:${httpPort}/readyz`);
  return ((await answer.json()) as { reasons?: string[] }).reasons ?? [];
}

test("after a read-only time, sessions that stay read-only are replaced, and errors were logged briefly", async () => {
  const cluster = await startCluster({ LOG_LEVEL: "warn" });
  onTestFinished(() => cluster.end());
  const { db } = cluster;
  const traffic = await amidTraffic(cluster);
  const name = new URL(cluster.databaseUrl).pathname.slice(1);
  await db.raw(`alter database ${name} set default_transaction_read_only = on`);
  const others =
    "select pg_terminate_backend(pid) from pg_stat_activity where datname = :name and pid <> pg_backend_pid()";
  await rows(db, others, { name });
  await traffic.untilReadOnly();
  await db.raw(`begin read write; alter database ${name} set default_transaction_read_only = off; commit`);
  await traffic.untilDelivered();
  const lines = cluster.api.printed().split("\n");
  const away = lines.filter((line) => line.includes('"the database is unavailable"'));
  expect(away.filter((line) => line.length > MAX_LINE)).toEqual([]);
  // Each distinct error once, and then at most one line in ten seconds, with the number of calls that failed alike.
  expect(away.length).toBeLessThan(cluster.publisher.repeated());
  expect(away.length).toBeGreaterThan(0);
});

test.skipIf(process.platform === "win32")(
  "a standby is promoted and the old primary restarted as a standby at the old address: nothing is lost",
  async () => {
    let gateway!: DatabaseGateway;
    const cluster = await startOwnCluster(async ({ postgres }) => {
      gateway = await startDatabaseGateway(postgres.url);
      return { DATABASE_URL: gateway.url };
    });
    const standby = await startStandby(cluster.postgres);
    onTestFinished(async () => {
      await cluster.end();
      await standby.stop();
      await gateway.close();
    });
    const db = openDatabase(gateway.url, { max: 2, applicationName: "test" });
    onTestFinished(() => db.destroy());
    const traffic = await amidTraffic({ ...cluster, db, api: cluster.api });
    await cluster.postgres.stop();
    await standby.promote();
    await standby.follow();
    await traffic.untilReadOnly();
    gateway.leadNewTo(standby.url);
    await traffic.untilDelivered();
  },
);
