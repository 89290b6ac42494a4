import { randomUUID } from "node:crypto";
import type pg from "pg";
import { connect as connectTo } from "./connect.ts";
import { NO_PREPARED_STATEMENTS } from "./database.ts";

/** The number of comparisons of two connections without a change after which a pooler counts as one in session mode. */
const COMPARISONS = 3;

/** Thrown if a pooler between the service and PostgreSQL does not support the configured use. */
export class PoolerError extends Error {
  override name = "PoolerError";
}

/**
 * Checks that a pooler at one of the addresses, if any, supports the prepared statements, LISTEN and session settings used there.
 *
 * @param url the address for statements and transactions
 * @param directUrl the address for LISTEN, migrations and session settings; may be the same
 * @param preparedStatements whether prepared statements are used over `url`
 * @throws PoolerError that names the variable to set
 */
export async function checkPooler(
  url: string,
  directUrl: string,
  preparedStatements: boolean,
): Promise<void> {
  const shared = await inspect(url);
  const direct = directUrl === url ? shared : await inspect(directUrl);
  if (shared.poolsTransactions && preparedStatements && !shared.keepsStatements)
    throw new PoolerError(`DATABASE_URL ${NO_PREPARED_STATEMENTS}`);
  if (!direct.poolsTransactions) return;
  throw new PoolerError(
    `${directUrl === url ? "DATABASE_URL" : "DATABASE_DIRECT_URL"} leads through a pooler in transaction mode (such as PgBouncer with pool_mode=transaction), ` +
      "which carries no LISTEN and no settings of a connection; set DATABASE_DIRECT_URL to the address of PostgreSQL itself",
  );
}

interface Findings {
  /** Whether the pooler assigns server connections per transaction. */
  poolsTransactions: boolean;
  /** Whether prepared statements work: names do not collide with those of other clients. */
  keepsStatements: boolean;
}

async function inspect(url: string): Promise<Findings> {
  const client = await connect(url);
  try {
    const server = await serverOf(client);
    if (server === (client as unknown as { processID: number }).processID)
      return { poolsTransactions: false, keepsStatements: true };
    const poolsTransactions = await changesServers(client, server, url);
    return { poolsTransactions, keepsStatements: !poolsTransactions || (await renamesStatements(client)) };
  } finally {
    await client.end().catch(() => {});
  }
}

/** Whether the pooler shows transaction mode: another connection gets this one's server process, or this one gets a new process. */
async function changesServers(client: pg.Client, server: number, url: string): Promise<boolean> {
  const other = await connect(url);
  try {
    for (let round = 0; round < COMPARISONS; round += 1) {
      await other.query("begin");
      if ((await serverOf(other)) === server || (await serverOf(client)) !== server) return true;
      await other.query("rollback");
    }
    return false;
  } finally {
    await other.end().catch(() => {});
  }
}

/** Whether the server sees a different name for a prepared statement than this client gave. */
async function renamesStatements(client: pg.Client): Promise<boolean> {
  const name = `pooler_check_${randomUUID()}`;
  const text = "select from pg_prepared_statements where name = $1";
  await client.query("begin");
  const { rowCount } = await client.query({ name, text, values: [name] });
  if (rowCount === 1) await client.query(`deallocate ${client.escapeIdentifier(name)}`);
  await client.query("commit");
  return rowCount === 0;
}

/** The id of the server process that runs statements of this connection. */
async function serverOf(client: pg.Client): Promise<number> {
  const { rows } = await client.query<{ pid: number }>("select pg_backend_pid() as pid");
  return (rows[0] as { pid: number }).pid;
}

async function connect(url: string): Promise<pg.Client> {
  const settings = { application_name: "webhook-service-start", query_timeout: 5_000 };
  return (await connectTo(url, settings)).client;
}
