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
  });
}

/** The rows of a raw query, typed by the caller. */
export async function rows<T>(db: Db, sql: string, bindings: Knex.RawBinding[] | Record<string, Knex.RawBinding> = []): Promise<T[]> {
  const result = await db.raw(sql, bindings as Knex.RawBinding[]);
  return result.rows as T[];
}
