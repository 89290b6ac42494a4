import { randomBytes, randomUUID } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { inspect } from "node:util";
import { createClient } from "@connectrpc/connect";
import { Client, Connection } from "@temporalio/client";
import { msToTs } from "@temporalio/common/lib/time.js";
import { expect, onTestFinished, vi } from "vitest";
import { createLocalAuthority } from "../../demo/certificates.ts";
import { EventService, WebhookProcess } from "../../gen/webhook/v1/event_pb.ts";
import { WebhookService } from "../../gen/webhook/v1/webhook_pb.ts";
import { startEmbeddedPostgres } from "../../src/lib/dev-servers/postgres/embedded-postgres.ts";
import { removeDataDir } from "../../src/lib/dev-servers/postgres/postgres-home.ts";
import { startEmbeddedTemporal } from "../../src/lib/dev-servers/temporal/embedded-temporal.ts";
import { type Db, openDatabase, rows } from "../../src/lib/pg/database.ts";
import { transactionWithRetry } from "../../src/lib/pg/deadlock.ts";
import { createLogger } from "../../src/lib/process/logger.ts";
import { ensureSearchAttributes, SEARCH_ATTRIBUTES } from "../../src/temporal/search-attributes.ts";
import { anyPort } from "../support/any-port.ts";
import { createTestDatabase } from "../support/database.ts";
import { orderEvent } from "../support/grpc-calls.ts";
import { imbalance, readLedger } from "../support/ledger.ts";
import { part } from "../support/parts.ts";
import { PATIENCE_MS } from "../support/patience.ts";
import { PROMPT_TIMERS } from "../support/run/temporal.ts";
import type { ServiceProcess } from "../support/service-process.ts";
import { keyedTransport } from "../support/test-service.ts";
import { eventually, until } from "../support/wait.ts";

/** What a test file's services run on: a database of the run's PostgreSQL and a namespace of its Temporal. */
export type FaultParts = Awaited<ReturnType<typeof startFaultParts>>;
/** A PostgreSQL and a Temporal of a test file's own, to be killed. */
export type OwnFaultParts = Awaited<ReturnType<typeof startOwnFaultParts>>;

/** Short times: four attempts take a few seconds, and what a killed worker held is taken over soon. */
export const PACE = {
  DISPATCH_INTERVAL: "1s",
  RETRY_INITIAL_DELAY: "500ms",
  RETRY_BACKOFF_COEFFICIENT: "1.5",
  HEARTBEAT_TIMEOUT: "3s",
  DELIVERY_TIMEOUT: "30s",
  DELIVERY_ALLOWED_NETWORKS: "127.0.0.0/8",
};

/** Makes a database and a namespace of a test file's own, of servers that nobody kills. */
export async function startFaultParts() {
  const { url, drop } = await createTestDatabase();
  const { temporal, leave } = await createNamespace();
  return withSettings({ databaseUrl: url, temporal }, async () => {
    await leave();
    await drop();
  });
}

/** Starts a PostgreSQL and a Temporal in a folder of their own. */
export async function startOwnFaultParts() {
  const dataDir = await mkdtemp(path.join(tmpdir(), "webhook-test-faults-"));
  const progress = () => {};
  const [postgres, server] = await Promise.all([
    startEmbeddedPostgres({ dataDir, progress, port: await anyPort() }),
    startEmbeddedTemporal({
      ...{ dataDir, progress, port: await anyPort(), uiPort: await anyPort() },
      searchAttributes: SEARCH_ATTRIBUTES,
      dynamicConfig: PROMPT_TIMERS,
    }),
  ]);
  const temporal = Object.assign(server, { namespace: "default" });
  return withSettings({ databaseUrl: postgres.url, temporal, postgres }, async () => {
    await Promise.all([temporal.stop(), postgres.stop()]);
    await removeDataDir(dataDir);
    await rm(dataDir, { recursive: true, force: true });
  });
}

interface Namespace {
  address: string;
  namespace: string;
}

/** Adds what every test file's services need. */
async function withSettings<T extends { databaseUrl: string; temporal: Namespace }>(
  servers: T,
  end: () => Promise<void>,
) {
  const { databaseUrl, temporal } = servers;
  const folder = await mkdtemp(path.join(tmpdir(), "webhook-test-authority-"));
  const authority = await createLocalAuthority();
  const authorityFile = path.join(folder, "authority.pem");
  await writeFile(authorityFile, authority.cert);
  const adminKey = `whk_${randomBytes(24).toString("base64url")}`;
  const db = openDatabase(databaseUrl, { max: 2, applicationName: "test" });
  const environment: Record<string, string> = {
    DATABASE_URL: databaseUrl,
    TEMPORAL_ADDRESS: temporal.address,
    TEMPORAL_NAMESPACE: temporal.namespace,
    SECRET_KEY: randomBytes(32).toString("base64"),
    ADMIN_KEY: adminKey,
    NODE_EXTRA_CA_CERTS: authorityFile,
    ...PACE,
  };
  return {
    ...servers,
    db,
    adminKey,
    certificate: await authority.issue(["localhost", "127.0.0.1"]),
    /** Settings for services on these parts: short times, and the authority of the local receivers. */
    environment,
    async end() {
      await db.destroy();
      await end();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** A client of the parts' Temporal; its connection is the caller's to close. */
export async function temporalClient({ temporal }: { temporal: Namespace }): Promise<Client> {
  const connection = await Connection.connect({ address: temporal.address });
  return new Client({ connection, namespace: temporal.namespace });
}

/** The handle of a run: of the last one, unless `where` says which. Its connection ends with the test. */
export async function handleOfRun(parts: FaultParts, where = "true order by id desc") {
  const [run] = await rows<{ workflow_id: string; first_run_id: string }>(
    parts.db,
    `select workflow_id, first_run_id from runs where ${where} limit 1`,
  );
  const { connection, workflow } = await temporalClient(parts);
  onTestFinished(() => connection.close());
  const handle = workflow.getHandle(run?.workflow_id as string, run?.first_run_id);
  return {
    handle,
    /** The activities of this type that it waits for. */
    async pending(type: string) {
      const { raw } = await handle.describe();
      return (raw.pendingActivities ?? []).filter(({ activityType }) => activityType?.name === type);
    },
  };
}

/** The processes whose workers hold deliveries, by their ids, in order. */
export async function holders(db: Db): Promise<number[]> {
  const found = await rows<{ pid: number }>(
    db,
    `select distinct split_part(name, '/', 2)::int as pid from workers
      where id in (select claimed_by from queue) order by 1`,
  );
  return found.map(({ pid }) => pid);
}

/** Makes a namespace of the run's Temporal that runs can be started in; `leave` ends what would start runs for ever. */
async function createNamespace() {
  const temporal = { address: (await part("temporal")).address, namespace: `test-${randomUUID()}` };
  const { namespace } = temporal;
  const client = await temporalClient({ temporal });
  const workflowExecutionRetentionPeriod = msToTs("1 day");
  await client.workflowService.registerNamespace({ namespace, workflowExecutionRetentionPeriod });
  // The server learns of it a moment later.
  await eventually(() => client.workflow.count());
  await ensureSearchAttributes(client, namespace, createLogger("warn"));
  return {
    temporal,
    async leave() {
      for await (const { scheduleId } of client.schedule.list())
        await client.schedule.getHandle(scheduleId).delete();
      await client.connection.close();
    },
  };
}

/** Registers a webhook, for OrderDispatched unless told otherwise. */
export async function register(
  grpcPort: number,
  adminKey: string,
  url: string,
  process: WebhookProcess = WebhookProcess.ORDER_DISPATCHED,
): Promise<bigint> {
  const client = createClient(WebhookService, keyedTransport(grpcPort, adminKey));
  const { webhook } = await client.createWebhook({ process, url });
  return webhook?.id as bigint;
}

/** Publishes `count` orders, one after the other. */
export async function publishMany(grpcPort: number, adminKey: string, count: number): Promise<void> {
  const client = createClient(EventService, keyedTransport(grpcPort, adminKey));
  for (let n = 1; n <= count; n += 1) await client.publishEvent(orderEvent());
}

/** Stores events with a delivery for each of the webhooks, as publishing would; the payload has a text of so many bytes. */
export async function storeEvents(
  db: Db,
  webhooks: readonly bigint[],
  events: number,
  bytes = 0,
): Promise<void> {
  await rows(
    db,
    `with event as (
        insert into events (id, api_key_id, idempotency_key, process, user_id, occurred, recipients, payload)
        select new_event_id(), (select id from api_keys limit 1), 'stored-' || new_event_id(), 1, 'tenant-1', now(),
          cardinality(:webhooks::bigint[]), '{"text":"' || repeat(md5(n::text), :bytes::int / 32) || '"}'
        from generate_series(1, :events::int) n returning id
      )
      insert into queue (id, event_id, webhook_id)
      select new_delivery_id(event.id), event.id, w from event cross join unnest(:webhooks::bigint[]) w`,
    { webhooks, events, bytes },
  );
}

/** Removes all webhooks, events and deliveries. Services that run meanwhile may hold the tables in another order. */
export async function removeAll(db: Db): Promise<void> {
  await transactionWithRetry(db, (trx) =>
    trx.raw("truncate webhooks, processes, events, queue, retries, deliveries, attempts cascade"),
  );
}

/** Deliveries by state and recorded attempts. */
export function outcomes(db: Db): Promise<{ state: string; attempts: number; n: number }[]> {
  return rows(
    db,
    "select state, attempts, count(*)::int as n from all_deliveries group by 1, 2 order by 1, 2",
  );
}

/** Waits until every delivery has come to an end. The database may be away meanwhile. */
export async function untilAllFinal(db: Db): Promise<void> {
  const isFinal = ({ state }: { state: string }) => ["delivered", "failed", "cancelled"].includes(state);
  const check = async () => expect((await outcomes(db)).filter((each) => !isFinal(each))).toEqual([]);
  await vi.waitFor(check, { timeout: PATIENCE_MS, interval: 250 });
}

/** Waits until /readyz of each of the processes answers this status. */
export async function untilReady(services: readonly ServiceProcess[], status: number): Promise<void> {
  const readiness = async ({ httpPort }: ServiceProcess) =>
    (await fetch(`http://127.0.0.1:${httpPort}/readyz`).catch(() => undefined))?.status;
  await until(async () => (await Promise.all(services.map(readiness))).every((each) => each === status));
}

/**
 * The recorded attempts must be numbered from 1 without a gap, as many as the delivery says, four at most; and the ledger
 * must balance.
 */
export async function checkAttempts(db: Db): Promise<void> {
  const wrong = await rows(
    db,
    `select d.id, d.attempts, count(a.number)::int as recorded, max(a.number) as highest
      from all_deliveries d left join all_attempts a on a.delivery_id = d.id
      group by d.id, d.attempts having count(a.number) <> d.attempts or coalesce(max(a.number), 0) <> d.attempts or d.attempts > 4`,
  );
  expect(wrong).toEqual([]);
  const ledger = await readLedger(db);
  expect(imbalance(ledger), `accepted deliveries that are nowhere: ${inspect(ledger)}`).toBe(0n);
}
