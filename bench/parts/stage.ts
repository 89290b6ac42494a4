import { randomBytes, randomUUID } from "node:crypto";
import path from "node:path";
import { Client, Connection } from "@temporalio/client";
import { startEmbeddedTemporal } from "../../src/lib/dev-servers/temporal/embedded-temporal.ts";
import { type Db, openDatabase } from "../../src/lib/pg/database.ts";
import { temporalNames } from "../../src/temporal/names.ts";
import { SEARCH_ATTRIBUTES } from "../../src/temporal/search-attributes.ts";
import { createSecretBox, type SecretBox } from "../../src/webhooks/secret-box.ts";
import type { Bench } from "./bench.ts";
import { childOf } from "./processes.ts";
import { type ServiceProcess, startService } from "./service-process.ts";

/** A service with its own database and Temporal, so that measurements do not affect each other. */
export interface Stage extends AsyncDisposable {
  bench: Bench;
  service: ServiceProcess;
  /** The delivering process: a worker beside the API, a process started by the service, or the service itself. */
  deliveryPid: number;
  db: Db;
  secrets: SecretBox;
  adminKey: string;
  temporal: Client;
  /** Starts a run, as the schedule does. */
  trigger(): Promise<void>;
  /** Starts another delivering process. */
  addWorker(): Promise<void>;
  /** Starts another service on the same servers. */
  startAnother(settings?: Record<string, string>): Promise<ServiceProcess>;
}

/** A database of the run's PostgreSQL that is dropped at the end. */
export interface FreshDatabase extends AsyncDisposable {
  url: string;
  db: Db;
}

/** Creates an empty database. The service creates the tables. */
export async function freshDatabase(bench: Bench): Promise<FreshDatabase> {
  const name = `bench_${randomUUID().replaceAll("-", "")}`;
  const server = openDatabase(bench.postgres.superuserUrl, { max: 1, applicationName: "bench" });
  await server.raw(`create database ${name}`);
  const address = new URL(bench.postgres.superuserUrl);
  address.pathname = `/${name}`;
  const db = openDatabase(address.href, { max: 3, applicationName: "bench" });
  return {
    url: address.href,
    db,
    async [Symbol.asyncDispose]() {
      await db.destroy();
      await server.raw(`drop database ${name} with (force)`);
      await server.destroy();
    },
  };
}

/**
 * Starts a service with default settings, except that one process delivers on every machine. With `ROLE=api`, also starts
 * a worker.
 *
 * @param settings environment variables of this measurement
 * @param scheduled whether the schedule is active; otherwise it is paused, and runs are triggered
 */
export async function openStage(
  bench: Bench,
  settings: Record<string, string> = {},
  scheduled = false,
): Promise<Stage> {
  await using stack = new AsyncDisposableStack();
  const database = stack.use(await freshDatabase(bench));
  const server = await startEmbeddedTemporal({
    dataDir: path.join(bench.folder, `temporal-${randomUUID()}`),
    progress: () => {},
    port: 0,
    uiPort: 0,
    searchAttributes: SEARCH_ATTRIBUTES,
  });
  stack.defer(() => server.stop());
  const secretKey = randomBytes(32);
  const adminKey = `whk_${randomBytes(24).toString("base64url")}`;
  const environment = {
    DATABASE_URL: database.url,
    TEMPORAL_ADDRESS: server.address,
    SECRET_KEY: secretKey.toString("base64"),
    ADMIN_KEY: adminKey,
    NODE_EXTRA_CA_CERTS: bench.authorityFile,
    DELIVERY_ALLOWED_NETWORKS: "127.0.0.0/8",
    CUSTOMER_ALLOWED_NETWORKS: "127.0.0.0/8",
    DELIVERY_PROCESSES: "1",
    ...settings,
  };
  const service = stack.use(await startService(environment, bench.profiles));
  const startWorker = () => startService({ ...environment, ROLE: "worker" }, bench.profiles);
  const worker = settings.ROLE === "api" ? stack.use(await startWorker()) : undefined;
  const connection = await Connection.connect({ address: server.address });
  stack.defer(() => connection.close());
  const temporal = new Client({ connection });
  const schedule = temporal.schedule.getHandle(temporalNames().scheduleId);
  if (!scheduled) await schedule.pause();
  const owned = stack.move();
  return {
    bench,
    service,
    deliveryPid: worker?.pid ?? childOf(service.pid) ?? service.pid,
    db: database.db,
    secrets: createSecretBox(secretKey),
    adminKey,
    temporal,
    trigger: () => schedule.trigger(),
    startAnother: (more = {}) => startService({ ...environment, ...more }, bench.profiles),
    async addWorker() {
      owned.use(await startWorker());
    },
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}
