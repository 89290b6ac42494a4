import type { Db } from "../database.ts";
import { rows } from "../database.ts";

/** Connections that one process uses beside its pool: to learn of changes, to announce events, and to migrate or see whether the database answers. */
const BESIDE_POOL = 3;

/** What PostgreSQL allows, and what is used of it at the moment. */
export interface ConnectionBudget {
  /** Connections that are not reserved for administrators (`max_connections` less the reserved ones). */
  available: number;
  /** Connections of all clients now. */
  used: number;
  /** Processes with a pool of this size that `available` has room for. */
  processes: number;
}

/** Reads how many processes with pools of `poolSize` connections the server has room for. */
export async function readConnectionBudget(db: Db, poolSize: number): Promise<ConnectionBudget> {
  const [row] = await rows<{ available: number; used: number }>(
    db,
    `select current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
          - coalesce(current_setting('reserved_connections', true)::int, 0) as available,
        (select count(*)::int from pg_stat_activity where backend_type = 'client backend') as used`,
  );
  const { available, used } = row as { available: number; used: number };
  return { available, used, processes: Math.floor(available / (poolSize + BESIDE_POOL)) };
}

/**
 * What to do about pools that the server has too little room for; null when there is enough for them and the connections
 * of others that are open now.
 *
 * @param pools of this process and of those that it starts
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
