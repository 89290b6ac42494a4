import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, expect, test } from "vitest";
import { DeliveryService } from "../../gen/webhook/v1/delivery_pb.ts";
import { EventService } from "../../gen/webhook/v1/event_pb.ts";
import {
  type EmbeddedPostgres,
  startEmbeddedPostgres,
} from "../../src/lib/dev-servers/postgres/embedded-postgres.ts";
import { removeDataDir } from "../../src/lib/dev-servers/postgres/postgres-home.ts";
import { type Db, openDatabase } from "../../src/lib/pg/database.ts";
import { readReplica, type StaleReads } from "../../src/lib/pg/read-replica.ts";
import { migrate } from "../../src/schema/migrate.ts";
import { type Standby, startStandby } from "../faults/standby.ts";
import { anyPort } from "../support/any-port.ts";
import { orderEvent } from "../support/grpc-calls.ts";
import { startTestApi, type TestApi } from "../support/test-api.ts";
import { keyedTransport } from "../support/test-service.ts";

/** Shorter than the service's, and longer than two lists take on a busy machine. */
const MAX_LAG_MS = 3_000;

let folder: string;
let postgres: EmbeddedPostgres;
let standby: Standby;
let primary: Db;
let replica: Db;
let reads: StaleReads;
let api: TestApi;

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), "webhook-test-replica-"));
  postgres = await startEmbeddedPostgres({ dataDir: folder, progress: () => {}, port: await anyPort() });
  await migrate(postgres.url);
  standby = await startStandby(postgres);
  const superuserUrl = Object.assign(new URL(postgres.superuserUrl), { port: new URL(standby.url).port });
  replica = openDatabase(superuserUrl.href, { max: 1, writes: false });
  primary = openDatabase(postgres.url, { max: 2 });
  api = await startTestApi({
    databaseUrl: postgres.url,
    reads: (log) =>
      readReplica(primary, standby.url, {
        poolSize: 2,
        preparedStatements: true,
        log,
        maxLagMs: MAX_LAG_MS,
      }),
  });
  reads = api.context.reads as StaleReads;
});
afterAll(async () => {
  await api?.stop();
  await reads?.close();
  await primary?.destroy();
  await replica?.destroy();
  await standby?.stop();
  await postgres?.stop();
  await removeDataDir(folder);
  await rm(folder, { recursive: true, force: true });
});

test("lists come from the replica, with its lag, and from the primary while it lags too much or is away", async () => {
  const transport = keyedTransport(api.grpcPort as number, api.adminKey);
  const events = createClient(EventService, transport);
  const deliveries = createClient(DeliveryService, transport);
  /** How many deliveries the list has, and the lag in its header; null without one. */
  const list = async () => {
    let lag: string | null = null;
    const page = await deliveries.listDeliveries(
      {},
      { onHeader: (headers) => (lag = headers.get("X-Replica-Lag-Ms")) },
    );
    return { deliveries: page.deliveries.length, lag: lag === null ? null : Number(lag) };
  };
  await api.register();
  await events.publishEvent(orderEvent());
  await expect.poll(list).toEqual({ deliveries: 1, lag: 0 });

  await replica.raw("select pg_wal_replay_pause()");
  await events.publishEvent(orderEvent());
  await expect.poll(() => reads.lagMs()).toBeGreaterThan(0);
  const behind = await list();
  // A migration that the replica has not replayed.
  await api.context.db.raw("alter table settings add column newer int");
  const newer = await reads.read(async (db) => (await db.raw("select newer from settings limit 0")).rows);
  expect(newer).toEqual({ result: [], lagMs: null });
  expect(behind.deliveries).toBe(1);
  expect(behind.lag).toBeGreaterThan(0);
  // Time itself is what lags.
  await expect.poll(list).toEqual({ deliveries: 2, lag: null });
  await replica.raw("select pg_wal_replay_resume()");
  await expect.poll(list).toEqual({ deliveries: 2, lag: 0 });

  const answers = Array.from({ length: 20 }, list);
  standby.kill();
  for (const { deliveries: found } of await Promise.all(answers)) expect(found).toBe(2);
  await expect.poll(list).toEqual({ deliveries: 2, lag: null });
  // A failed read falls back at once; the comparison, once a second, finds out later.
  await expect.poll(() => reads.lagMs()).toBeNull();
  await standby.restart();
  await expect.poll(list).toEqual({ deliveries: 2, lag: 0 });
});
