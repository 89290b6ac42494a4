import type { Histogram } from "@opentelemetry/api";
import knex, { type Knex } from "knex";
import pg from "pg";
import { untilCallEnds } from "./connections/call-signal.ts";
import { databaseErrorClass } from "./faults.ts";

/** A pool or a transaction: what every repository function takes first. */
export type Db = Knex;

/** 64-bit integers as bigint, exact; knex and pg give strings otherwise. */
const types = {
  getTypeParser(oid: number, format?: "text" | "binary") {
    if (oid === pg.types.builtins.INT8 && format !== "binary") return (value: string) => BigInt(value);
    return pg.types.getTypeParser(oid, format as "text");
  },
};

/** A statement that outlives this has lost its server; without it a vanished peer holds a caller for ever. */
const QUERY_TIMEOUT_MS = 60_000;

/**
 * Opens a pool; connects only when first used.
 *
 * @param url PostgreSQL connection address
 * @param options.max most connections at once
 * @param options.queryTimeoutMs how long a statement may take; 0 for as long as it likes
 * @param options.preparedStatements false: hot statements are planned at each execution, since a pooler between loses
 *   prepared ones. Defaults to true
 * @param options.operationDuration records each statement's, in seconds; undefined: nothing is measured
 */
export function openDatabase(
  url: string,
  options: {
    max: number;
    applicationName?: string;
    queryTimeoutMs?: number;
    preparedStatements?: boolean;
    operationDuration?: Histogram | undefined;
  },
): Db {
  const db = knex({
    client: "pg",
    connection: {
      connectionString: url,
      application_name: options.applicationName ?? "webhook-service",
      keepAlive: true,
      connectionTimeoutMillis: 5_000,
      query_timeout: options.queryTimeoutMs ?? QUERY_TIMEOUT_MS,
      types,
    } as Knex.PgConnectionConfig,
    pool: { min: 0, max: options.max, validate: isIdle },
    acquireConnectionTimeout: 10_000,
    // Its warnings repeat, on the console, errors that are thrown too.
    log: { warn() {}, error() {}, deprecate() {}, debug() {} },
  });
  // Transactions have them too.
  db.userParams = {
    preparedStatements: options.preparedStatements ?? true,
    operationDuration: options.operationDuration,
  };
  return db;
}

/** The pool of a process, and its connections to PostgreSQL itself. */
export interface Databases {
  db: Db;
  /** A single connection, not by way of a pooler; `db` where there is none. */
  directDb: Db;
  directUrl: string;
  close(): Promise<void>;
}

/**
 * Opens both; they connect when first used.
 *
 * @param options.directUrl PostgreSQL's own address where `url` is a pooler's. Undefined: `url`
 */
export function openDatabases(
  url: string,
  options: {
    directUrl: string | undefined;
    poolSize: number;
    preparedStatements: boolean;
    operationDuration?: Histogram | undefined;
  },
): Databases {
  const { directUrl = url, poolSize, preparedStatements, operationDuration } = options;
  const db = openDatabase(url, { max: poolSize, preparedStatements, operationDuration });
  const directDb = directUrl === url ? db : openDatabase(directUrl, { max: 1 });
  return {
    db,
    directDb,
    directUrl,
    async close() {
      await directDb.destroy();
      if (directDb !== db) await db.destroy();
    },
  };
}

/**
 * Whether a pooled connection can take a statement. After one that was given up, such as by `QUERY_TIMEOUT_MS`, it still
 * waits for the answer, and everything asked next would wait behind that: for ever where the server has vanished.
 */
function isIdle(connection: pg.Client & { _getActiveQuery(): unknown }): boolean {
  return !connection._getActiveQuery();
}

/** Values for the `:name` places of a query; arrays become PostgreSQL arrays. */
export type Bindings = Record<string, unknown>;

/** How a query is run. */
export interface QueryOptions {
  /** Names a prepared statement, planned once a connection: for the few queries that run thousands of times. */
  prepare?: string;
}

/**
 * The rows of a raw query, typed by the caller.
 *
 * Places are written `:name`; a cast may follow (`:ids::uuid[]`), which knex's own named bindings would take for an
 * identifier.
 */
export async function rows<T>(
  db: Db,
  sql: string,
  bindings: Bindings = {},
  options: QueryOptions = {},
): Promise<T[]> {
  return (await measured<T>(db, sql, bindings, options)).rows;
}

/** As `rows`, but answers how many rows the statement touched. */
export async function count(db: Db, sql: string, bindings: Bindings = {}): Promise<number> {
  return (await measured(db, sql, bindings, {})).rowCount ?? 0;
}

/** A query with knex's places, and the names of what goes into them, in order. */
interface Translated {
  text: string;
  names: string[];
}

const translations = new Map<string, Translated>();

function translate(sql: string): Translated {
  let known = translations.get(sql);
  if (!known) {
    const names: string[] = [];
    const text = sql.replace(/(?<![:\w]):([a-z]\w*)/gi, (_place, name: string) => {
      names.push(name);
      return "?";
    });
    known = { text, names };
    // Queries are written in the code, so there are only so many of them.
    translations.set(sql, known);
  }
  return known;
}

async function measured<T>(
  ...[db, sql, bindings, options]: Parameters<typeof execute>
): Promise<{ rows: T[]; rowCount: number | null }> {
  const duration: Histogram | undefined = db.userParams.operationDuration;
  if (!duration) return execute<T>(db, sql, bindings, options);
  const began = performance.now();
  const attributes: Record<string, string> = {
    "db.system.name": "postgresql",
    "db.operation.name": options.prepare ?? /[a-z]+/i.exec(sql)?.[0].toLowerCase() ?? "",
  };
  try {
    return await execute<T>(db, sql, bindings, options);
  } catch (error) {
    attributes["error.type"] = databaseErrorClass(error).replace(" ", "_");
    throw error;
  } finally {
    duration.record((performance.now() - began) / 1_000, attributes);
  }
}

async function execute<T>(
  db: Db,
  sql: string,
  bindings: Bindings,
  { prepare }: QueryOptions,
): Promise<{ rows: T[]; rowCount: number | null }> {
  const { text, names } = translate(sql);
  const values = names.map((name) => {
    if (!(name in bindings)) throw new Error(`the query has no value for :${name}`);
    return bindings[name];
  });
  const ask = (name?: string) => {
    // Poolers prepare each text once for all clients, so what is prepared anew needs a new text, too.
    const query = db.raw(generation > 0 && name ? `${text}\n-- ${name}` : text, values as Knex.RawBinding[]);
    return untilCallEnds<{ rows: T[]; rowCount: number | null }>(
      db,
      name === undefined ? query : query.options({ name }),
    );
  };
  if (prepare === undefined || !db.userParams.preparedStatements) return ask();
  const asked = `${prepare}_${generation}`;
  try {
    return await ask(asked);
  } catch (error) {
    if (isLostByPooler(error)) throw new PreparedStatementError(error);
    if (databaseErrorClass(error) !== "stale statement" || db.isTransaction) throw error;
    // Every connection prepares it anew under another name.
    if (asked === `${prepare}_${generation}`) generation = Date.now();
  }
  try {
    return await ask(`${prepare}_${generation}`);
  } catch (error) {
    if (isLostByPooler(error) || (error as { code?: string }).code === "26000")
      throw new PreparedStatementError(error);
    throw error;
  }
}

/**
 * Part of the names of prepared statements: when a server was last found to have forgotten some of them, in milliseconds
 * since 1970. Not counted: behind a pooler, names and texts of processes that have ended stay in use.
 */
let generation = 0;

/** A connection never prepares a name twice, so another client's statement is on its server's connection. */
const isLostByPooler = (error: unknown) => (error as { code?: string }).code === "42P05";

/** A pooler between the service and PostgreSQL mixes up prepared statements. */
export class PreparedStatementError extends Error {
  override name = "PreparedStatementError";

  constructor(cause: unknown) {
    super(`DATABASE_URL ${NO_PREPARED_STATEMENTS}`, { cause });
  }
}

/** What is wrong with an address, and what to do. */
export const NO_PREPARED_STATEMENTS =
  "leads through a pooler in transaction mode that does not keep prepared statements (such as PgBouncer before 1.21, or with max_prepared_statements=0); " +
  "set DATABASE_PREPARED_STATEMENTS=false, or use PgBouncer 1.21 or later with max_prepared_statements=200";
