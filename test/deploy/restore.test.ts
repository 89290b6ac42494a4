import { randomUUID } from "node:crypto";
import path from "node:path";
import { createClient } from "@connectrpc/connect";
import { afterAll, afterEach, beforeAll, beforeEach, expect, onTestFinished, test } from "vitest";
import { EventService } from "../../gen/webhook/v1/event_pb.ts";
import { type Db, openDatabase, rows } from "../../src/lib/pg/database.ts";
import { type Ledger, startLedger } from "../faults/ledger.ts";
import {
  checkAttempts,
  type FaultParts,
  outcomes,
  register,
  startFaultParts,
  untilAllFinal,
} from "../faults/parts.ts";
import { orderEvent } from "../support/grpc-calls.ts";
import { type ServiceProcess, startServiceProcess } from "../support/service-process.ts";
import { keyedTransport } from "../support/test-service.ts";
import { type OwnPostgres, POSTGRES_PROGRAMS, recoverUpTo, startOwnPostgres } from "./own-postgres.ts";
import { describeWith } from "./programs.ts";

/** Events of each phase. */
const EVENTS = 40;

describeWith(POSTGRES_PROGRAMS, "docs/operations.md, back up and restore", () => {
  let postgres: OwnPostgres;
  let parts: FaultParts;
  /** Answers 500 while it is down. */
  let ledger: Ledger;
  let isDown = false;
  let database: string;
  /** The role of the service. */
  let user: string;
  const services: ServiceProcess[] = [];

  beforeAll(async () => {
    [postgres, parts] = await Promise.all([startOwnPostgres(), startFaultParts()]);
    await administer("create role service login");
    ledger = await startLedger(parts.certificate, 0, () => (isDown ? 500 : 200));
  });
  beforeEach(async () => {
    isDown = false;
    ledger.entries.length = 0;
    user = "service";
    database = `service_${randomUUID().slice(0, 8)}`;
    await administer(`create database ${database} owner service`);
  });
  afterEach(() => stopServices());
  afterAll(async () => {
    await ledger?.close();
    await parts?.end();
    await postgres?.end();
  });

  const administer = (sql: string) => postgres.call("psql", `--command=${sql}`, postgres.url("postgres"));
  const stopServices = () => Promise.all(services.splice(0).map((service) => service.end("SIGTERM")));

  async function start(role: "api" | "worker", environment: Record<string, string> = {}) {
    const DATABASE_URL = postgres.url(database, user);
    const service = await startServiceProcess({
      ...parts.environment,
      DATABASE_URL,
      ROLE: role,
      ...environment,
    });
    services.push(service);
    return service;
  }

  function open(): Db {
    const db = openDatabase(postgres.url(database, user), { max: 2 });
    onTestFinished(() => db.destroy());
    return db;
  }

  /** Publishes events under idempotency keys of the phase. */
  async function publish({ grpcPort }: ServiceProcess, phase: string): Promise<void> {
    const client = createClient(EventService, keyedTransport(grpcPort, parts.adminKey));
    for (let n = 0; n < EVENTS; n += 1)
      await client.publishEvent({ ...orderEvent(), idempotencyKey: `${phase}-${n}` });
  }

  /** Starts an API with a webhook. */
  async function startWithWebhook(): Promise<ServiceProcess> {
    const api = await start("api");
    await register(api.grpcPort, parts.adminKey, `${ledger.url}/`);
    return api;
  }

  /** Events by the phase in their idempotency keys. */
  async function phases(db: Db): Promise<Record<string, number>> {
    const found = await rows<{ phase: string; n: number }>(
      db,
      "select split_part(idempotency_key, '-', 1) as phase, count(*)::int as n from events group by 1",
    );
    return Object.fromEntries(found.map(({ phase, n }) => [phase, n]));
  }

  const requests = () => ledger.entries.map(({ deliveryId }) => deliveryId);

  /** Delivers everything in the database, and lets workers end. */
  async function deliverAll(db: Db): Promise<void> {
    const worker = await start("worker");
    await untilAllFinal(db);
    await worker.end("SIGTERM");
  }

  test("pg_dump and pg_restore: everything from before the dump is there, and what was delivered since is repeated under the same ids", async () => {
    const api = await startWithWebhook();
    await publish(api, "delivered");
    await deliverAll(open());
    const before = requests();
    expect(before).toHaveLength(EVENTS);
    await publish(api, "pending");
    const dump = path.join(postgres.folder, "backup", `${database}.dump`);
    await postgres.call("pg_dump", "--format=custom", `--file=${dump}`, postgres.url(database, user));
    await publish(api, "late");
    await deliverAll(open());
    const sinceDump = new Set(requests().slice(EVENTS));
    expect(sinceDump.size).toBe(2 * EVENTS);
    await stopServices();

    const restored = `${database}_restored`;
    await administer(`create database ${restored} owner service`);
    const options = ["--no-owner", "--role=service", "--exit-on-error", `--dbname=${postgres.url(restored)}`];
    await postgres.call("pg_restore", ...options, dump);
    database = restored;
    ledger.entries.length = 0;
    const db = open();
    const again = await start("api");
    expect(await phases(db)).toEqual({ delivered: EVENTS, pending: EVENTS });
    await deliverAll(db);
    expect(requests()).toHaveLength(EVENTS);
    for (const id of requests()) expect(sinceDump).toContain(id);
    await checkAttempts(db);
    // Publishers that publish again what they are not sure of: only what was lost is stored.
    await publish(again, "pending");
    await publish(again, "late");
    await deliverAll(db);
    expect(await outcomes(db)).toEqual([{ state: "delivered", attempts: 1, n: 3 * EVENTS }]);
    expect(requests()).toHaveLength(2 * EVENTS);
  });

  test("another role that acts as the owner replaces the first one: calls, deliveries and migrations work", async () => {
    await startWithWebhook();
    await administer("create role service_2 login in role service");
    await administer("alter role service_2 set role service");
    user = "service_2";
    await publish(await start("api"), "rotated");
    const db = open();
    await deliverAll(db);
    expect(await outcomes(db)).toEqual([{ state: "delivered", attempts: 1, n: EVENTS }]);
    await db.raw("alter table events add column later text");
    expect(await rows(db, "select distinct tableowner from pg_tables where schemaname = 'public'")).toEqual([
      { tableowner: "service" },
    ]);
  });

  test("a base backup and the archive: the database of a moment, deliveries of which continue", async () => {
    const data = path.join(postgres.folder, "data");
    const restored = path.join(postgres.folder, "restored");
    const api = await startWithWebhook();
    await publish(api, "base");
    const backup = [`--pgdata=${restored}`, `--dbname=${postgres.url("postgres")}`, "--checkpoint=fast"];
    await postgres.call("pg_basebackup", ...backup);
    await publish(api, "archived");
    const db = open();
    const [moment] = await rows<{ at: string }>(db, "select clock_timestamp()::text as at");
    await publish(api, "late");
    expect(await phases(db)).toEqual({ base: EVENTS, archived: EVENTS, late: EVENTS });
    await stopServices();
    await postgres.stop(data);

    await recoverUpTo(postgres, restored, moment?.at as string);
    await postgres.start(restored);
    const recovered = open();
    await expect
      .poll(() => rows(recovered, "select pg_is_in_recovery() as is").catch(() => []))
      .toEqual([{ is: false }]);
    expect(await phases(recovered)).toEqual({ base: EVENTS, archived: EVENTS });
    const again = await start("api");
    await publish(again, "late");
    await deliverAll(recovered);
    expect(await outcomes(recovered)).toEqual([{ state: "delivered", attempts: 1, n: 3 * EVENTS }]);
    expect(new Set(requests()).size).toBe(3 * EVENTS);
    await checkAttempts(recovered);
  });

  test("a lost Temporal: an empty one gets the schedule, first attempts are made, and retries are adopted", async () => {
    const db = open();
    const api = await startWithWebhook();
    isDown = true;
    await publish(api, "retried");
    const worker = await start("worker", { RETRY_INITIAL_DELAY: "15s" });
    const failedOnce = async () => (await outcomes(db)).map(({ state, attempts }) => [state, attempts]);
    await expect.poll(failedOnce).toEqual([["retrying", 1]]);
    // As if its machine had been lost with it.
    await worker.end("SIGKILL");
    await publish(api, "pending");
    isDown = false;
    const empty = await startFaultParts();
    try {
      const { address, namespace } = empty.temporal;
      await start("worker", { TEMPORAL_ADDRESS: address, TEMPORAL_NAMESPACE: namespace });
      await untilAllFinal(db);
      expect(await outcomes(db)).toEqual([
        { state: "delivered", attempts: 1, n: EVENTS },
        { state: "delivered", attempts: 2, n: EVENTS },
      ]);
      await checkAttempts(db);
      await stopServices();
    } finally {
      await empty.end();
    }
  });
});
