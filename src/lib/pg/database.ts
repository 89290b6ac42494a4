import type { Histogram } from "@opentelemetry/api";
import knex, { type Knex } from "knex";
import pg from "pg";
import { inTurn, untilCallEnds } from "./call-signal.ts";
import { databaseErrorClass } from "./faults.ts";

/** A pool or a transaction. The first parameter of every repository function. */
export type Db = Knex;

/** The data that a pool and its transactions share. */
interface UserParams {
  preparedStatements: boolean;
  operationDuration: Histogram | undefined;
  prepared: {
    /**
     * A suffix of the names of prepared statements: the time at which a server was last found to have lost some, in
     * milliseconds since 1970. Not a counter, because names and texts of ended processes remain in use behind a pooler.
     */
    generation: number;
  };
}

/** The data of a nested transaction, to which knex passes nothing on. */
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

/** The timeout of a statement, in milliseconds. Without it, a vanished server blocks its caller forever. */
const QUERY_TIMEOUT_MS = 60_000;

/** Turns the server's timeouts off. `transaction_timeout` is new in PostgreSQL 17. */
const NO_TIMEOUTS = `select set_config(name, '0', false) from pg_settings
  where name in ('statement_timeout', 'transaction_timeout')`;

/**
 * Opens a pool. Connects on first use.
 *
 * @param url PostgreSQL connection address
 * @param options.max most connections at once
 * @param options.queryTimeoutMs how long a statement may take; 0 for as long as it likes, whatever timeouts the role or the
 *   database has
 * @param options.lockTimeoutMs how long a statement may wait for a lock. Defaults to the server's `lock_timeout`
 * @param options.idleTimeoutMs how long a connection may be idle before the server ends it. Defaults to the server's
 *   `idle_session_timeout`
 * @param options.indexesOnly whether plans avoid sequential scans where there is an index. A queue is often empty when a
 *   statement is planned or its table is analysed, and must not be read from end to end once it is full. Nothing is JIT-compiled
 *   then: before PostgreSQL 18, a scan that cannot be avoided counts as very costly. Defaults to false
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
    lockTimeoutMs?: number;
    idleTimeoutMs?: number;
    indexesOnly?: boolean;
    preparedStatements?: boolean;
    operationDuration?: Histogram | undefined;
  },
): Db {
  const { queryTimeoutMs = QUERY_TIMEOUT_MS, lockTimeoutMs, idleTimeoutMs, indexesOnly = false } = options;
  const settings = [
    ...(queryTimeoutMs === 0 ? [NO_TIMEOUTS] : []),
    ...(lockTimeoutMs === undefined ? [] : [`set lock_timeout = ${lockTimeoutMs}`]),
    ...(idleTimeoutMs === undefined ? [] : [`set idle_session_timeout = ${idleTimeoutMs}`]),
    ...(indexesOnly ? ["set enable_seqscan = off", "set jit = off"] : []),
  ];
  const db = knex({
    client: "pg",
    connection: {
      connectionString: url,
      application_name: options.applicationName ?? "webhook-service-instance",
      keepAlive: true,
      connectionTimeoutMillis: 5_000,
      query_timeout: queryTimeoutMs,
      types,
    } as Knex.PgConnectionConfig,
    pool: {
      min: 0,
      max: options.max,
      validate: isIdle,
      // By statements, because poolers refuse them as parameters of the connection.
      ...(settings.length === 0 ? {} : { afterCreate: withSettings(settings) }),
    },
    acquireConnectionTimeout: 10_000,
    // Knex prints errors on the console that it also throws.
    log: { warn() {}, error() {}, deprecate() {}, debug() {} },
  });
  // Transactions have them too.
  db.userParams = {
    preparedStatements: options.preparedStatements ?? true,
    operationDuration: options.operationDuration,
    prepared: { generation: 0 },
  } satisfies UserParams;
  return db;
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
 * Opens both. They connect on first use.
 *
 * @param options.directUrl the address of PostgreSQL if `url` is that of a pooler. Defaults to `url`
 * @param options.delivers whether the process delivers: its plans then avoid sequential scans, unless a pooler is in between,
 *   whose connections keep no settings
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
function isIdle(connection: pg.Client & { _getActiveQuery(): unknown }): boolean {
  return !connection._getActiveQuery();
}

/** Values of the `:name` placeholders of a query. Arrays become PostgreSQL arrays. */
export type Bindings = Record<string, unknown>;

/** Options for running a query. */
export interface QueryOptions {
  /** The name of a prepared statement, planned once per connection. For the few queries that run thousands of times. */
  prepare?: string;
}

/**
 * Runs a raw query and returns its rows, with the caller's type.
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

/** Like `rows`, but returns the number of affected rows. */
export async function count(db: Db, sql: string, bindings: Bindings = {}): Promise<number> {
  return (await runRaw(db, sql, bindings, {})).rowCount ?? 0;
}

/**
 * Runs a query of knex's builder, for plain reads and writes of the tables in `tables.ts`. Like `rows`, it waits for its call's
 * turn, ends with its call and is measured.
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

/** The first word of a statement. */
const operationOf = (sql: string) => /[a-z]+/i.exec(sql)?.[0].toLowerCase() ?? "";

/** Records the duration of a statement, unless nothing is measured. */
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

/** The time by the database's clock: that of the start of the transaction, if `db` is one. */
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
    // All connections prepare it again under another name.
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

/** A connection prepares each name once, so the server connection holds another client's statement. */
const isLostByPooler = (error: unknown) => (error as { code?: string }).code === "42P05";

/** Thrown if a pooler between the service and PostgreSQL mixes up prepared statements. */
export class PreparedStatementError extends Error {
  override name = "PreparedStatementError";

  constructor(cause: unknown) {
    super(`DATABASE_URL ${NO_PREPARED_STATEMENTS}`, { cause });
  }
}

/** The rest of the error message: the problem and the remedy. */
export const NO_PREPARED_STATEMENTS =
  "leads through a pooler in transaction mode that does not keep prepared statements (such as PgBouncer before 1.21, or with max_prepared_statements=0); " +
  "set DATABASE_PREPARED_STATEMENTS=false, or use PgBouncer 1.21 or later with max_prepared_statements=200";
