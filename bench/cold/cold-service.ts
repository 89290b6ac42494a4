import { randomBytes, randomUUID } from "node:crypto";
import path from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { findRunningPostgres } from "../../src/lib/dev-servers/postgres/embedded-postgres.ts";
import { removeDataDir } from "../../src/lib/dev-servers/postgres/postgres-home.ts";
import { commandOf } from "../../src/lib/dev-servers/process/processes.ts";
import { type Db, openDatabase, rows } from "../../src/lib/pg/database.ts";
import { spawnService } from "../../test/support/spawned-service.ts";
import { startChild } from "../parts/child.ts";
import { PROCESS } from "../parts/payload.ts";
import { descendantsOf } from "../parts/processes.ts";
import type { PublisherMethods } from "../processes/publisher.ts";
import type { ColdBench } from "./cold-bench.ts";

/** A service that has just started with an empty database, as `npm start` does. */
export interface ColdService extends AsyncDisposable {
  /** The delivery process. */
  deliveryPid: number;
  /** The embedded Temporal server. */
  temporalPid: number;
  /** Registers webhooks over REST. */
  register(urls: readonly string[]): Promise<void>;
  /** Publishes events to all webhooks over gRPC, in one stream. */
  publish(events: number): Promise<void>;
  /** The transactions committed so far in the service's database, or in all databases. */
  commits(of: "service" | "all"): Promise<number>;
}

const REGISTRATIONS_AT_ONCE = 16;
const EVENTS_PER_MESSAGE = 10;
const END_TIMEOUT_MS = 10_000;
const POLL_MS = 50;

/**
 * Starts a service with its embedded PostgreSQL and Temporal in an empty folder, in the bench's control group, at full pace.
 *
 * @param settings environment variables other than the defaults
 */
export async function startColdService(
  bench: ColdBench,
  settings: Record<string, string>,
): Promise<ColdService> {
  await using stack = new AsyncDisposableStack();
  const dataDir = path.join(bench.folder, randomUUID());
  const adminKey = `whk_${randomBytes(24).toString("base64url")}`;
  stack.defer(() => removeDataDir(dataDir));
  bench.group?.setPace(1);
  const service = await spawnService(
    {
      DATA_DIR: dataDir,
      ADMIN_KEY: adminKey,
      NODE_EXTRA_CA_CERTS: bench.authorityFile,
      DELIVERY_ALLOWED_NETWORKS: "127.0.0.0/8",
      CUSTOMER_ALLOWED_NETWORKS: "127.0.0.0/8",
      LOG_LEVEL: "info",
      ...settings,
    },
    [],
    undefined,
    bench.group?.node,
  );
  stack.defer(() => endWithServers(service.pid));
  const db = openDatabase((await findRunningPostgres(dataDir)) as string, {
    max: 1,
    applicationName: "bench",
  });
  stack.defer(() => db.destroy());
  const publisher = stack.use(startChild<PublisherMethods>(bench, "publisher.ts"));
  const pidOf = (part: string) =>
    descendantsOf(service.pid).find((pid) => commandOf(pid)?.includes(part)) as number;
  const owned = stack.move();
  return {
    deliveryPid: pidOf("webhook-delivery"),
    temporalPid: pidOf("server start-dev"),
    register: (urls) => register(`http://127.0.0.1:${service.httpPort}/api/webhook`, adminKey, urls),
    async publish(events) {
      const grpcUrl = `http://127.0.0.1:${service.grpcPort}`;
      const stream = { events, streams: 1, eventsPerMessage: EVENTS_PER_MESSAGE };
      await publisher.call("streamed", { grpcUrl, key: adminKey, ...stream });
    },
    commits: (of) => commits(db, of),
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

async function register(api: string, key: string, urls: readonly string[]): Promise<void> {
  const left = [...urls];
  const headers = { "X-Service-Key": key, "Content-Type": "application/json" };
  await Promise.all(
    Array.from({ length: REGISTRATIONS_AT_ONCE }, async () => {
      for (let url = left.pop(); url !== undefined; url = left.pop()) {
        const body = JSON.stringify({ process: PROCESS, url });
        const response = await fetch(api, { method: "POST", headers, body });
        if (!response.ok) throw new Error(`registering ${url} failed: ${await response.text()}`);
        await response.arrayBuffer();
      }
    }),
  );
}

async function commits(db: Db, of: "service" | "all"): Promise<number> {
  const [found] = await rows<{ commits: number }>(
    db,
    `select sum(xact_commit)::float8 as commits from pg_stat_database
      where datname = current_database() or :all::boolean`,
    { all: of === "all" },
  );
  return found?.commits ?? 0;
}

/**
 * Ends a service and its servers at once: it would wait for receivers that never answer, and its data is not needed.
 * PostgreSQL gets SIGQUIT, so that it removes its shared memory.
 */
async function endWithServers(pid: number): Promise<void> {
  const pids = [pid, ...descendantsOf(pid)];
  for (const each of pids) end(each, commandOf(each)?.includes("postgres") ? "SIGQUIT" : "SIGKILL");
  const until = Date.now() + END_TIMEOUT_MS;
  while (pids.some((each) => commandOf(each) !== null)) {
    if (Date.now() > until) for (const each of pids) end(each, "SIGKILL");
    await wait(POLL_MS);
  }
}

function end(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    // The process has ended.
  }
}
