import pino from "pino";
import { expect, onTestFinished, test } from "vitest";
import { BacklogGauges } from "../../src/metrics/backlog-gauges.ts";
import { createTestDatabase } from "../support/database.ts";
import { startDatabaseGateway } from "../support/database-gateway.ts";

/** The longest time until another process takes over: the idle timeout of a session, and the longest interval. */
const TAKEOVER_MS = 90_000;

test(
  "a process exports the backlog after the machine of the one that did is lost",
  async () => {
    const database = await createTestDatabase();
    onTestFinished(() => database.drop());
    const gateway = await startDatabaseGateway(database.url);
    const start = (url: string) => {
      const gauges = new BacklogGauges();
      gauges.start(url, pino({ level: "silent" }));
      onTestFinished(() => gauges.close());
      return async () => (await gauges.collect()).resourceMetrics.scopeMetrics[0]?.metrics.length ?? 0;
    };
    const lost = start(gateway.url);
    onTestFinished(() => gateway.close());
    await expect.poll(lost, { timeout: 20_000 }).toBeGreaterThan(0);
    // The server sees no end of the connection.
    gateway.hang();
    const other = start(database.url);
    await expect.poll(other, { timeout: TAKEOVER_MS, interval: 250 }).toBeGreaterThan(0);
  },
  TAKEOVER_MS + 60_000,
);
