import pino from "pino";
import { expect, onTestFinished, test } from "vitest";
import { openDatabase, rows } from "../../src/lib/pg/database.ts";
import { BacklogGauges } from "../../src/metrics/backlog-gauges.ts";
import { readBacklog } from "../../src/queue/backlog.ts";
import { createTestDatabase } from "../support/database.ts";
import { startDatabaseGateway } from "../support/database-gateway.ts";

/** Short times, in milliseconds; a process takes over within the idle timeout and the interval. */
const TIMES = { interval: { min: 100, max: 500 }, idleTimeout: 3_000 };

/** Two processes, of which the first exports the backlog and reaches the database by way of a gateway. */
async function startTwo() {
  const database = await createTestDatabase();
  onTestFinished(() => database.drop());
  const gateway = await startDatabaseGateway(database.url);
  const start = (url: string) => {
    const gauges = new BacklogGauges(TIMES);
    gauges.start(url, pino({ level: "silent" }), readBacklog);
    onTestFinished(() => gauges.close());
    return async () => (await gauges.collect()).resourceMetrics.scopeMetrics[0]?.metrics.length ?? 0;
  };
  const first = start(gateway.url);
  onTestFinished(() => gateway.close());
  await expect.poll(first).toBeGreaterThan(0);
  return { first, other: start(database.url), gateway, url: database.url };
}

test("one process exports the backlog, and another one once its connection has ended", async () => {
  const { first, other, gateway, url } = await startTwo();
  const db = openDatabase(url, { max: 1 });
  onTestFinished(() => db.destroy());
  // The session of the first one is not idle: the other one asks again and again, each time in a new session.
  const sessions = async () => {
    expect(await other()).toBe(0);
    const counted = "select sessions::int from pg_stat_database where datname = current_database()";
    return (await rows<{ sessions: number }>(db, counted))[0]?.sessions ?? 0;
  };
  const before = await sessions();
  await expect.poll(sessions).toBeGreaterThan(before + 4);
  expect(await first()).toBeGreaterThan(0);
  await gateway.set("refuse");
  await expect.poll(other).toBeGreaterThan(0);
  await expect.poll(first).toBe(0);
});

test("another process exports the backlog after the machine of the exporting process is lost", async () => {
  const { other, gateway } = await startTwo();
  // The server sees no end of the connection.
  gateway.hang();
  await expect.poll(other).toBeGreaterThan(0);
});
