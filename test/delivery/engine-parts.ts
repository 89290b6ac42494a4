import { randomBytes, randomUUID } from "node:crypto";
import type { Knex } from "knex";
import pino from "pino";
import { readConfig } from "../../src/config/config.ts";
import { type Db, openDatabase } from "../../src/db/database.ts";
import { openRuns } from "../../src/db/queue/runs.ts";
import { createSecretBox, type SecretBox, WEBHOOK_SECRET_PURPOSE } from "../../src/db/webhooks/secret-box.ts";
import { createDeliveryEngine, type DeliveryEngine } from "../../src/delivery/engine.ts";
import type { Resolver } from "../../src/delivery/http/name-resolver.ts";
import type { Pacer } from "../../src/delivery/http/pacer.ts";
import type { PumpResult } from "../../workflows/activities.ts";
import { queueMany } from "../db/queue/queue.ts";
import { createTestDatabase } from "../support/database.ts";

/** A delivery engine on a database of its own. */
export interface EngineParts {
  db: Db;
  /** Address of the database. */
  url: string;
  engine: DeliveryEngine;
  secrets: SecretBox;
  /** An engine as another process on the same database has it; closed with the first. */
  another(): DeliveryEngine;
  end(): Promise<void>;
}

/** How the engines of a test reach what they need. */
export interface EngineOptions {
  /** Looks names up. Defaults to the system's resolver. */
  resolver?: Resolver;
  /** Paces new connections. Defaults to the service's pace. */
  handshakes?: Pacer;
  /** The database as the engines see it, faults included. Defaults to the database as it is. */
  wrap?: (db: Db) => Db;
  /** The address over which the engines read changes of webhooks. Defaults to the database's own address. */
  changesUrl?: (databaseUrl: string) => string | Promise<string>;
  /** Aborted when the first engine's process stops. Defaults to never. */
  stopping?: AbortSignal;
}

/** @param settings over the defaults, beside leave to deliver to this machine */
export async function startEngine(
  settings: Record<string, string> = {},
  { resolver, handshakes, wrap = (db) => db, changesUrl = (url) => url, stopping }: EngineOptions = {},
): Promise<EngineParts> {
  const database = await createTestDatabase();
  const directUrl = await changesUrl(database.url);
  const db = openDatabase(database.url, { max: 10, indexesOnly: true });
  const secrets = createSecretBox(randomBytes(32));
  const config = readConfig({ DELIVERY_ALLOWED_NETWORKS: "127.0.0.0/8", ...settings });
  const never = new AbortController().signal;
  const engines: DeliveryEngine[] = [];
  function another(): DeliveryEngine {
    const engine = createDeliveryEngine({
      db: wrap(db),
      directDb: db,
      directUrl,
      secrets,
      log: pino({ level: "silent" }),
      ...config,
      stopping: engines.length === 0 ? (stopping ?? never) : never,
      ...(resolver ? { resolver } : {}),
      ...(handshakes ? { handshakes } : {}),
    });
    engines.push(engine);
    return engine;
  }
  return {
    db,
    url: database.url,
    engine: another(),
    secrets,
    another,
    async end() {
      await Promise.all(engines.map((engine) => engine.close()));
      await db.destroy();
      await database.drop();
    },
  };
}

/** Sends what is pending, until nothing is left or the pump is stopped. */
export function pump(
  { pumps }: DeliveryEngine,
  runId: number,
  stop: AbortSignal = new AbortController().signal,
): Promise<PumpResult> {
  return pumps.run(runId, { lingers: false, forMs: 600_000 }, stop);
}

/** Registers webhooks at a receiver, and queues each event for each of them; the bodies are `{"N":1}` and on. */
export async function queueFor(
  { db, secrets }: EngineParts,
  receiverUrl: string,
  wanted: { webhooks: number; events: number },
): Promise<void> {
  const secret = secrets.seal(randomBytes(32), WEBHOOK_SECRET_PURPOSE);
  await queueMany(db, { ...wanted, urlPrefix: `${receiverUrl}/`, secret });
}

/** The id of a fresh run. */
export async function freshRun(db: Db): Promise<number> {
  const [runId] = await openRuns(db, [
    { workflowId: randomUUID(), firstRunId: randomUUID(), leaseMs: 60_000 },
  ]);
  return runId as number;
}

/** What becomes of a statement: it is not run, or it is run and its answer is lost. */
export type Fault = "refused" | "answer lost";

/**
 * A database whose statements are answered by what `answer` returns for them; as usual where that is undefined. A statement runs when
 * its query is awaited.
 */
export function intercepted(
  db: Db,
  answer: (
    sql: string,
    bindings: readonly unknown[],
    query: Knex.Raw<{ rows: unknown[] }>,
  ) => Promise<unknown> | undefined,
): Db {
  return new Proxy(db, {
    get(target, property) {
      if (property !== "raw") return Reflect.get(target, property);
      return (sql: string, bindings: readonly unknown[]) => {
        const query = target.raw<{ rows: unknown[] }>(sql, bindings as never);
        const answered = answer(sql, bindings, query);
        // Prepared statements are run by way of `options`.
        return answered ? Object.assign(answered, { options: () => answered }) : query;
      };
    },
  });
}

/** A database that tells each of its statements once it has been answered, and before anybody has the answer. */
export function observed(db: Db, answered: (sql: string) => void | Promise<void>): Db {
  return intercepted(db, async (sql, _bindings, query) => {
    const answer = await query;
    await answered(sql);
    return answer;
  });
}

/** A database whose statements fail where `faultOf` says so, as when the connection ends. */
export function faulty(db: Db, faultOf: (sql: string) => Fault | undefined): Db {
  const failing = async (fault: Fault, query: PromiseLike<unknown>) => {
    if (fault === "answer lost") await query;
    throw new Error("Connection terminated unexpectedly");
  };
  return intercepted(db, (sql, _bindings, query) => {
    const fault = faultOf(sql);
    return fault && failing(fault, query);
  });
}
