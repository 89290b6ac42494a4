import type { Histogram } from "@opentelemetry/api";
import knex, { type Knex } from "knex";
import pg from "pg";
import { inTurn, untilCallEnds } from "./call-signal.ts";
import { connect, SESSION_STATE, type SessionState } from "./connect.ts";
import { databaseErrorClass } from "./faults.ts";
import { PoolSessions } from "./sessions.ts";

/** A pool or a transaction. Functions that run queries take it as their first parameter. */
export type Db = Knex;

/** The data that a pool and its transactions share. */
interface UserParams {
  preparedStatements: boolean;
  operationDuration: Histogram | undefined;
  sessions?: PoolSessions;
  prepared: {
    /**
     * The suffix of the names of prepared statements: 0 at first, then the time at which a prepared statement was last found
     * lost or outdated, in milliseconds since 1970. A counter would repeat names of ended processes, which a pooler still uses.
     */
    generation: number;
  };
}

/** The data of nested transactions, because knex does not pass `userParams` on to them. */
const NESTED: UserParams = {
  preparedStatements: false,
  operationDuration: undefined,
  prepared: { generation: 0 },
};

const userParamsOf = (db: Db) => ("prepared" in db.userParams ? (db.userParams as UserParams) : NESTED);

/** Parses 64-bit integers as bigint. By default knex and pg return strings. */
const types = {
  getTypeParser(oid: number, format?: "text" | "binary") {
    if (oid === pg.types.builtins.INT8 && format !== "binary") return (value: string) => BigInt(value);
    return pg.types.getTypeParser(oid, format as "text");
  },
};

/** The default timeout of a statement, in milliseconds. Without a timeout, a vanished server blocks its caller forever. */
const QUERY_TIMEOUT_MS = 60_000;

/**
 * The age from which a connection is replaced before its next statement, in milliseconds. Connections thus follow an address that
 * leads to another server, a host that is back, and changed certificates and settings of roles. Opening one takes some 10 ms.
 */
const MAX_CONNECTION_AGE_MS = 10 * 60_000;
/** The maximum of a random time that is added to MAX_CONNECTION_AGE_MS, in milliseconds, so that connections do not end together. */
const MAX_AGE_SPREAD_MS = 2 * 60_000;

/** The maximum length of the statement in the message of an error, in characters. */
const MAX_STATEMENT_LENGTH = 80;

/** Turns the server's timeouts off. Skips `transaction_timeout` before PostgreSQL 17, where it does not exist. */
const NO_TIMEOUTS = `select set_config(name, '0', false) from pg_settings
  where name in ('statement_timeout', 'transaction_timeout')`;

/**
 * Opens a pool. Connects on first use.
 *
 * @param url the connection URL of PostgreSQL
 * @param options.max the maximum number of connections
 * @param options.applicationName the name of the connections in `pg_stat_activity`
 * @param options.queryTimeoutMs the timeout of a statement, in milliseconds. Defaults to 60,000 (QUERY_TIMEOUT_MS). 0 for no
 *   timeout, not even those that the role or the database sets
 * @param options.lockTimeoutMs the maximum time that a statement waits for a lock, in milliseconds. Defaults to the server's
 *   `lock_timeout`
 * @param options.idleTimeoutMs the idle time after which the server ends a connection, in milliseconds. Defaults to the server's
 *   `idle_session_timeout`
 * @param options.indexesOnly whether plans avoid sequential scans where an index exists. For a table that serves as a queue: it is
 *   often empty when the statement is planned or the table is analysed, so the planner would choose a sequential scan, which is slow
 *   once the table is full. Also turns JIT compilation off, which the planner would otherwise use too often: before PostgreSQL 18, an
 *   unavoidable sequential scan gets an extremely high cost. Defaults to false
 * @param options.preparedStatements whether statements with `prepare` are prepared. False for a pooler that does not keep prepared
 *   statements. Defaults to true
 * @param options.operationDuration records the duration of each statement, in seconds. Undefined to record nothing
 * @param options.writes whether the database is written to. The pool then has no connection to a server in recovery, and replaces its
 *   connections when one of them answers that it is read-only. Defaults to true
 */
export function openDatabase(
  url: string,
  options: {
    max: number;
    applicationName?: string;
    queryTimeoutMs?: number;
    lockTimeoutMs?: number;
    idleTimeoutMs?: number;
    indexesOnly?: boolean;
    preparedStatements?: boolean;
    operationDuration?: Histogram | undefined;
    writes?: boolean;
  },
): Db {
  const { queryTimeoutMs = QUERY_TIMEOUT_MS, lockTimeoutMs, idleTimeoutMs } = options;
  const { indexesOnly = false, writes = true } = options;
  const settings = [
    ...(queryTimeoutMs === 0 ? [NO_TIMEOUTS] : []),
    ...(lockTimeoutMs === undefined ? [] : [`set lock_timeout = ${lockTimeoutMs}`]),
    ...(idleTimeoutMs === undefined ? [] : [`set idle_session_timeout = ${idleTimeoutMs}`]),
    ...(indexesOnly ? ["set enable_seqscan = off", "set jit = off"] : []),
  ];
  const sessions = new PoolSessions();
  const db = knex({
    client: "pg",
    connection: {
      connectionString: url,
      application_name: options.applicationName ?? "webhook-service-instance",
      keepAlive: true,
      query_timeout: queryTimeoutMs,
      types,
    } as Knex.PgConnectionConfig,
    pool: {
      min: 0,
      max: options.max,
      maxConnectionLifetimeMillis: MAX_CONNECTION_AGE_MS,
      maxConnectionLifetimeJitterMillis: MAX_AGE_SPREAD_MS,
      validate: (client: PooledClient) => isIdle(client) && sessions.isUsable(client),
      // Set by statements, because poolers refuse these settings as connection parameters.
      ...(settings.length === 0 ? {} : { afterCreate: withSettings(settings) }),
    },
    acquireConnectionTimeout: 10_000,
    // Silent, because knex throws the errors that it would print.
    log: { warn() {}, error() {}, deprecate() {}, debug() {} },
  });
  // In place of knex's own, which knows one host.
  db.client._acquireOnlyConnection = async () => {
    const at = performance.now();
    const { client, state } = await connect(url, db.client.connectionSettings, { writes });
    client.on("error", (error) => {
      (client as PooledClient).__knex__disposed = error;
    });
    client.on("end", () => {
      (client as PooledClient).__knex__disposed ??= "the connection has ended";
    });
    sessions.add(client, writes ? state : { ...state, isReadOnly: false }, at);
    return client;
  };
  db.client.on("query-error", shorten);
  // Knex passes these on to the pool's transactions.
  db.userParams = {
    preparedStatements: options.preparedStatements ?? true,
    operationDuration: options.operationDuration,
    sessions,
    prepared: { generation: 0 },
  } satisfies UserParams;
  return db;
}

/** A connection of a pool, including the parts that pg's types omit, and knex's mark for a connection to close. */
interface PooledClient extends pg.Client {
  _getActiveQuery(): unknown;
  __knex__disposed?: unknown;
}

/** Shortens the message of a statement's error. Knex puts the whole statement in front of the message. */
function shorten(error: Error, { sql }: { sql: string }): void {
  const message = error.message.startsWith(`${sql} - `) ? error.message.slice(sql.length + 3) : error.message;
  const statement = sql.replaceAll(/\s+/g, " ").trim();
  const isLong = statement.length > MAX_STATEMENT_LENGTH;
  error.message = `${message} (in: ${isLong ? `${statement.slice(0, MAX_STATEMENT_LENGTH)}…` : statement})`;
  error.name = "DatabaseError";
}

/**
 * Whether a session of the pool can write. Otherwise the pool replaces its sessions.
 *
 * @throws the error of the session
 */
export async function takesWrites(db: Db): Promise<boolean> {
  const { rows } = await db.raw<{ rows: SessionState[] }>(SESSION_STATE);
  const { isReadOnly } = rows[0] as SessionState;
  if (isReadOnly) userParamsOf(db).sessions?.retire();
  return !isReadOnly;
}

const withSettings =
  (settings: readonly string[]) =>
  (connection: pg.Client, done: (error: Error | null, connection: pg.Client) => void) =>
    connection.query(settings.join(";"), (error) => done(error, connection));

/** The pool of a process and its direct connection to PostgreSQL. */
export interface Databases {
  db: Db;
  /** A single direct connection that bypasses the pooler; the same as `db` without a pooler. */
  directDb: Db;
  directUrl: string;
  close(): Promise<void>;
}

/**
 * Opens the pool and the direct connection of a process. They connect on first use.
 *
 * @param url the connection URL of PostgreSQL or a pooler
 * @param options.directUrl the connection URL of PostgreSQL if `url` leads to a pooler. Defaults to `url`
 * @param options.poolSize the maximum number of connections of the pool
 * @param options.preparedStatements as in `openDatabase`
 * @param options.delivers whether the process reads queues: its pool then has `indexesOnly` of `openDatabase`. Ignored with a pooler,
 *   whose connections keep no settings
 * @param options.operationDuration as in `openDatabase`, for the pool
 */
export function openDatabases(
  url: string,
  options: {
    directUrl: string | undefined;
    poolSize: number;
    preparedStatements: boolean;
    delivers: boolean;
    operationDuration?: Histogram | undefined;
  },
): Databases {
  const { directUrl = url, poolSize, preparedStatements, delivers, operationDuration } = options;
  const indexesOnly = delivers && directUrl === url;
  const db = openDatabase(url, { max: poolSize, indexesOnly, preparedStatements, operationDuration });
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
 * Whether a pooled connection can run a statement. After an abandoned statement, for example by `QUERY_TIMEOUT_MS`,
 * the connection still waits for its result, and later statements would wait behind it: forever if the server has
 * vanished.
 */
function isIdle(connection: PooledClient): boolean {
  return !connection._getActiveQuery();
}

/** Values of the `:name` placeholders of a query. Arrays become PostgreSQL arrays. */
export type Bindings = Record<string, unknown>;

/** Options for running a query. */
export interface QueryOptions {
  /** The name under which each connection prepares the statement once. Undefined: not prepared. For the few most frequent queries. */
  prepare?: string;
}

/**
 * Runs a raw query and returns its rows. Does not check that they have the type `T`.
 *
 * Placeholders are written `:name` and may be followed by a cast (`:ids::uuid[]`), which knex's named bindings would
 * misread as an identifier.
 */
export async function rows<T>(
  db: Db,
  sql: string,
  bindings: Bindings = {},
  options: QueryOptions = {},
): Promise<T[]> {
  return (await runRaw<T>(db, sql, bindings, options)).rows;
}

/** Like `rows`, for a query of one column: returns its values. */
export async function column<T>(db: Db, sql: string, bindings: Bindings = {}): Promise<T[]> {
  const found = await rows<Record<string, T>>(db, sql, bindings);
  return found.map((row) => Object.values(row)[0] as T);
}

/** Like `rows`, but returns the number of affected rows. */
export async function count(db: Db, sql: string, bindings: Bindings = {}): Promise<number> {
  return (await runRaw(db, sql, bindings, {})).rowCount ?? 0;
}

/**
 * Runs a query of knex's query builder. Like a query of `rows`, the query waits for its call's turn, is cancelled when its call
 * ends, and is measured.
 */
export function run<T>(db: Db, query: Knex.ChainableInterface<T>): Promise<T> {
  return inTurn(db, () =>
    measured(
      db,
      () => operationOf((query as Knex.QueryBuilder).toSQL().sql),
      () => untilCallEnds<T>(db, query),
    ),
  );
}

/** A query with knex's placeholders, and the names of their values in order. */
interface Translated {
  text: string;
  names: string[];
}

/** Translations by statement. Bounded: statements are constants in the code. */
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
    // The cache is bounded: queries are constants in the code.
    translations.set(sql, known);
  }
  return known;
}

/** The first word of a statement in lower case, such as `select`. */
const operationOf = (sql: string) => /[a-z]+/i.exec(sql)?.[0].toLowerCase() ?? "";

/** Executes a statement and records its duration, if the pool has an `operationDuration`. */
async function measured<T>(db: Db, operation: () => string, execute: () => Promise<T>): Promise<T> {
  const { operationDuration: duration } = userParamsOf(db);
  if (!duration) return execute();
  const began = performance.now();
  const attributes: Record<string, string> = {
    "db.system.name": "postgresql",
    "db.operation.name": operation(),
  };
  try {
    return await execute();
  } catch (error) {
    attributes["error.type"] = databaseErrorClass(error).replace(" ", "_");
    throw error;
  } finally {
    duration.record((performance.now() - began) / 1_000, attributes);
  }
}

function runRaw<T>(
  ...[db, sql, bindings, options]: Parameters<typeof execute>
): Promise<{ rows: T[]; rowCount: number | null }> {
  return inTurn(db, () =>
    measured(
      db,
      () => options.prepare ?? operationOf(sql),
      () => execute<T>(db, sql, bindings, options),
    ),
  );
}

/** Reads the time of the database's clock. In a transaction, this is the time at which the transaction started. */
export async function databaseTime(db: Db): Promise<Date> {
  const [clock] = await rows<{ now: Date }>(db, "select now() as now");
  return (clock as { now: Date }).now;
}

async function execute<T>(
  db: Db,
  sql: string,
  bindings: Bindings,
  { prepare }: QueryOptions,
): Promise<{ rows: T[]; rowCount: number | null }> {
  const { text, names } = translate(sql);
  const values = names.map((name) => {
    if (!(name in bindings)) throw new Error(`no value for the placeholder :${name}; pass one in bindings`);
    return bindings[name];
  });
  const { preparedStatements, prepared } = userParamsOf(db);
  const ask = (name?: string) => {
    // A pooler prepares each distinct text once for all clients, so preparing again requires a different text.
    const query = db.raw(
      prepared.generation > 0 && name ? `${text}\n-- ${name}` : text,
      values as Knex.RawBinding[],
    );
    return untilCallEnds<{ rows: T[]; rowCount: number | null }>(
      db,
      name === undefined ? query : query.options({ name }),
    );
  };
  if (prepare === undefined || !preparedStatements) return ask();
  const asked = `${prepare}_${prepared.generation}`;
  try {
    return await ask(asked);
  } catch (error) {
    if (isLostByPooler(error)) throw new PreparedStatementError(error);
    if (databaseErrorClass(error) !== "stale statement" || db.isTransaction) throw error;
    // From now on, all connections use new names, and so prepare their statements again.
    if (asked === `${prepare}_${prepared.generation}`) prepared.generation = Date.now();
  }
  try {
    return await ask(`${prepare}_${prepared.generation}`);
  } catch (error) {
    if (isLostByPooler(error) || (error as { code?: string }).code === "26000")
      throw new PreparedStatementError(error);
    throw error;
  }
}

/**
 * Whether the name of a prepared statement is already in use (42P05). A connection prepares each name once, so a pooler has assigned
 * it a server connection on which another client prepared the statement.
 */
const isLostByPooler = (error: unknown) => (error as { code?: string }).code === "42P05";

/** Thrown if a pooler between the service and PostgreSQL mixes up prepared statements. */
export class PreparedStatementError extends Error {
  override name = "PreparedStatementError";

  constructor(cause: unknown) {
    super(`DATABASE_URL ${NO_PREPARED_STATEMENTS}`, { cause });
  }
}

/** The rest of an error message that begins with the name of the setting: the problem and the remedy. */
export const NO_PREPARED_STATEMENTS =
  "leads through a pooler in transaction mode that does not keep prepared statements (such as PgBouncer before 1.21, or with max_prepared_statements=0); " +
  "set DATABASE_PREPARED_STATEMENTS=false, or use PgBouncer 1.21 or later with max_prepared_statements=200";
