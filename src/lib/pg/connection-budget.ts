import type { Db } from "./database.ts";
import { rows } from "./database.ts";

/**
 * The maximum number of connections that a process uses in addition to its pool: one that listens for notifications, one
 * that reads metrics, and one that checks whether the database responds. Migrations, which run earlier, use two.
 */
const CONNECTIONS_OUTSIDE_POOL = 3;

/** The connection limit of PostgreSQL and its current use. */
export interface ConnectionBudget {
  /** Connections available to ordinary roles (`max_connections` minus reserved ones). */
  available: number;
  /** Connections of all clients at the moment, including this process. */
  used: number;
  /** The number of processes with a pool of the given size that fit into `available`, if nobody else connects. */
  processes: number;
}

/** Reads the connection limit and its use, and calculates how many processes with pools of `poolSize` connections fit. */
export async function readConnectionBudget(db: Db, poolSize: number): Promise<ConnectionBudget> {
  const [row] = await rows<{ available: number; used: number }>(
    db,
    `select current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
          - coalesce(current_setting('reserved_connections', true)::int, 0) as available,
        (select count(*)::int from pg_stat_activity where backend_type = 'client backend') as used`,
  );
  const { available, used } = row as { available: number; used: number };
  return { available, used, processes: Math.floor(available / (poolSize + CONNECTIONS_OUTSIDE_POOL)) };
}

/**
 * Returns a warning if the full pools do not fit beside the connections in use, including those of this process; otherwise null.
 *
 * @param poolSize the maximum number of connections of each pool
 * @param pools the number of pools of this process and the processes that it starts
 */
export function budgetWarning(
  { available, used, processes }: ConnectionBudget,
  poolSize: number,
  pools: number,
): string | null {
  if (used + pools * poolSize <= available) return null;
  const here = pools === 1 ? "" : `, which ${pools} processes of this service have,`;
  return (
    `DATABASE_POOL_SIZE=${poolSize}${here} may be more than PostgreSQL has room for: it allows ${available} connections, ${used} are in use, ` +
    `and there is room for ${processes} processes with such a pool; lower DATABASE_POOL_SIZE${pools === 1 ? "" : " or DELIVERY_PROCESSES"}, raise max_connections, or put PgBouncer in front`
  );
}
