import { randomBytes, randomUUID } from "node:crypto";
import { createNoopMeter } from "@opentelemetry/api";
import type { Knex } from "knex";
import pino from "pino";
import { onTestFinished } from "vitest";
import { startMaintenance } from "../../src/app/maintenance.ts";
import { areDeliveriesExpected } from "../../src/breakers/expected.ts";
import { readConfig } from "../../src/config/config.ts";
import { createDeliveryEngine, type DeliveryEngine } from "../../src/delivery/engine.ts";
import type { PassResult } from "../../src/delivery/retry-pass.ts";
import type { Resolver } from "../../src/lib/egress/name-resolver.ts";
import { type Db, rows } from "../../src/lib/pg/database.ts";
import { createDeliveryInstruments } from "../../src/metrics/instruments.ts";
import { assignGroups } from "../../src/queue/retry-groups.ts";
import { type OpenRun, openRuns } from "../../src/queue/runs.ts";
import { createSecretBox, WEBHOOK_SECRET_PURPOSE } from "../../src/webhooks/secret-box.ts";
import type { PumpResult } from "../../workflows/activities.ts";
import { queueMany } from "../queue/queue.ts";
import { useDatabase } from "../support/database.ts";

/** A delivery engine on the database that the files of a worker share. */
export type EngineParts = Awaited<ReturnType<typeof startEngine>>;

/** How the engines of a test reach what they need. */
export interface EngineOptions {
  /** Looks names up. Defaults to the system's resolver. */
  resolver?: Resolver;
  /** The database as the engines see it, faults included; by their number, from 0. Defaults to the database as it is. */
  wrap?: (db: Db, engine: number) => Db;
  /** Aborted when the first engine's process stops. Defaults to never. */
  stopping?: AbortSignal;
  /** What the engines are given instead of the defaults. */
  more?: Partial<
    Pick<Parameters<typeof createDeliveryEngine>[0], "handshakes" | "instruments" | "log" | "now">
  >;
}

const NEVER = new AbortController().signal;

/** Starts an engine on empty tables. @param settings over the defaults, beside leave to deliver to this machine */
export async function startEngine(
  settings: Record<string, string> = {},
  { resolver, wrap = (db) => db, stopping = NEVER, more = {} }: EngineOptions = {},
) {
  const db = await useDatabase();
  const { connectionString } = db.client.config.connection as { connectionString: string };
  const secrets = createSecretBox(randomBytes(32));
  const defaults = { DELIVERY_ALLOWED_NETWORKS: "127.0.0.0/8", DELIVERY_TIMEOUT: "60s" };
  const config = readConfig({ ...defaults, ...settings });
  const engines: DeliveryEngine[] = [];
  const maintenance: (() => Promise<void>)[] = [];
  /** An engine as another process on the same database has it; closed with the first. */
  function another(): DeliveryEngine {
    const parts = {
      db: wrap(db, engines.length),
      directDb: db,
      directUrl: connectionString,
      secrets,
      log: pino({ level: "silent" }),
      instruments: createDeliveryInstruments(createNoopMeter()),
      ...config,
      expectsMore: areDeliveriesExpected,
      stopping: engines.length === 0 ? stopping : NEVER,
      ...(resolver ? { resolver } : {}),
      ...more,
    };
    const engine = createDeliveryEngine(parts);
    engines.push(engine);
    maintenance.push(startMaintenance({ ...parts, lease: engine.lease }));
    return engine;
  }
  const engine = another();
  async function end(): Promise<void> {
    await Promise.all(maintenance.map((stop) => stop()));
    await Promise.all(engines.map((each) => each.close()));
  }
  return { db, engine, secrets, another, end };
}

/** The same, until the end of the test. */
export async function useEngine(...given: Parameters<typeof startEngine>): Promise<EngineParts> {
  const parts = await startEngine(...given);
  onTestFinished(parts.end);
  // As publishing and registering would have it.
  await parts.db("processes").insert({ process: 1, revision: 1n, live: 1 });
  return parts;
}

/** Sends what is pending, until nothing is left or the pump is stopped. */
export function pump({ pumps }: DeliveryEngine, runId: number, stop = NEVER): Promise<PumpResult> {
  return pumps.run(runId, { lingers: false, forMs: 600_000 }, stop);
}

/** Makes all retries of a run that has one failing webhook due, and a pass over them. */
export async function passDue(
  db: Db,
  { retries }: DeliveryEngine,
  runId: number,
  stop = NEVER,
): Promise<PassResult> {
  await db.raw("update retries set due = now()");
  await assignGroups(db, runId);
  return retries.run({ runId, group: 1 }, { horizonMs: 1_000, forMs: 60_000 }, stop);
}

/** Registers webhooks at a receiver, and queues each event for each of them; the bodies are `{"N":1}` and on. */
export async function queueFor(
  { db, secrets }: EngineParts,
  receiverUrl: string,
  wanted: { webhooks: number; events: number },
): Promise<bigint[]> {
  const secret = secrets.seal(randomBytes(32), WEBHOOK_SECRET_PURPOSE);
  return queueMany(db, { ...wanted, urlPrefix: `${receiverUrl}/`, secret });
}

/** The number of deliveries that live workers have claimed. */
export async function claimed({ db }: EngineParts): Promise<number> {
  return (await rows(db, "select from all_deliveries where state = 'delivering'")).length;
}

/** The number of deliveries by state, attempts and reason: `delivered 1`. */
export async function states({ db }: EngineParts): Promise<Record<string, number>> {
  const found = await rows<{ state: string; n: number }>(
    db,
    `select concat_ws(' ', state, attempts, reason) as state, count(*)::int as n from all_deliveries group by 1`,
  );
  return Object.fromEntries(found.map(({ state, n }) => [state, n]));
}

/** The id of a fresh run. */
export async function freshRun(db: Db): Promise<number> {
  const [run] = await openRuns(db, [{ workflowId: randomUUID(), firstRunId: randomUUID(), leaseMs: 60_000 }]);
  return (run as OpenRun).id;
}

/** Statements, by their beginning. */
export const FIRST_CLAIM = /^\s*with recursive\s+waiting/;
export const RETRY_CLAIM = /^\s*with members/;
export const RELEASE = /^update queue set claims = claims - 1/;

/** What becomes of a statement: it is not run, or it is run and its answer is lost. */
export type Fault = "refused" | "answer lost";

/** A database whose statements are answered as `answer` says. A statement runs when its query is awaited. */
function intercepted(
  db: Db,
  answer: (sql: string, query: Knex.Raw<{ rows: unknown[] }>) => Promise<unknown> | undefined,
): Db {
  return new Proxy(db, {
    get(target, property) {
      if (property !== "raw") return Reflect.get(target, property);
      return (sql: string, bindings: readonly unknown[]) => {
        const query = target.raw<{ rows: unknown[] }>(sql, bindings as never);
        const answered = answer(sql, query);
        // Prepared statements are run by way of `options`.
        return answered ? Object.assign(answered, { options: () => answered }) : query;
      };
    },
  });
}

/** A database that tells each of its statements once it has been answered, and before anybody has the answer. */
export function observed(db: Db, answered: (sql: string) => void | Promise<void>): Db {
  return intercepted(db, async (sql, query) => {
    const answer = await query;
    await answered(sql);
    return answer;
  });
}

/** A database whose statements fail where `faultOf` says so, as when the connection ends. */
export function faulty(db: Db, faultOf: (sql: string) => Fault | undefined): Db {
  return intercepted(db, (sql, query) => {
    const fault = faultOf(sql);
    if (!fault) return undefined;
    return Promise.resolve(fault === "answer lost" ? query : undefined).then(() => {
      throw new Error("Connection terminated unexpectedly");
    });
  });
}
