import knex, { type Knex } from "knex";
import pg from "pg";

/** A pool or a transaction: what every repository function takes first. */
export type Db = Knex;

/** 64-bit integers as bigint, exact; knex and pg give strings otherwise. */
const types = {
  getTypeParser(oid: number, format?: "text" | "binary") {
    if (oid === pg.types.builtins.INT8 && format !== "binary") return (value: string) => BigInt(value);
    return pg.types.getTypeParser(oid, format as "text");
  },
};

/**
 * Opens a pool; connects only when first used.
 *
 * @param url PostgreSQL connection address
 * @param options.max most connections at once
 */
export function openDatabase(url: string, options: { max: number; applicationName?: string }): Db {
  return knex({
    client: "pg",
    connection: {
      connectionString: url,
      application_name: options.applicationName ?? "webhook-service",
      keepAlive: true,
      connectionTimeoutMillis: 5_000,
      // A statement that outlives this has lost its server; without it a vanished peer holds a caller for ever.
      query_timeout: 60_000,
      types,
    } as Knex.PgConnectionConfig,
    pool: { min: 0, max: options.max },
    acquireConnectionTimeout: 10_000,
    // Its warnings repeat, on the console, errors that are thrown too.
    log: { warn() {}, error() {}, deprecate() {}, debug() {} },
  });
}

/** Values for the `:name` places of a query; arrays become PostgreSQL arrays. */
export type Bindings = Record<string, unknown>;

/**
 * The rows of a raw query, typed by the caller.
 *
 * Places are written `:name`; a cast may follow (`:ids::uuid[]`), which knex's own named bindings would take for an
 * identifier.
 */
export async function rows<T>(db: Db, sql: string, bindings: Bindings = {}): Promise<T[]> {
  return (await execute<T>(db, sql, bindings)).rows;
}

/** As `rows`, but answers how many rows the statement touched. */
export async function count(db: Db, sql: string, bindings: Bindings = {}): Promise<number> {
  return (await execute(db, sql, bindings)).rowCount ?? 0;
}

async function execute<T>(
  db: Db,
  sql: string,
  bindings: Bindings,
): Promise<{ rows: T[]; rowCount: number | null }> {
  const values: unknown[] = [];
  const text = sql.replace(/(?<![:\w]):([a-z]\w*)/gi, (place, name: string) => {
    if (!(name in bindings)) throw new Error(`the query has no value for ${place}`);
    values.push(bindings[name]);
    return "?";
  });
  return db.raw(text, values as Knex.RawBinding[]);
}
