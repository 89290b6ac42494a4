import path from "node:path";
import pg from "pg";

/** The credentials of a connection. */
export interface Login {
  role: string;
  password: string;
}

/** The connection URL of a database of the embedded PostgreSQL. Contains the password: do not log. */
export function addressOf({ role, password }: Login, port: number, database: string): string {
  return `postgres://${role}:${encodeURIComponent(password)}@127.0.0.1:${port}/${database}`;
}

/** Resolves if the PostgreSQL at `url` responds and uses the data folder `data`; rejects otherwise. */
export async function assertServes(url: string, data: string): Promise<void> {
  await withClient(url, async (client) => {
    const { rows } = await client.query<{ data_directory: string }>("show data_directory");
    // Resolved, because PostgreSQL on Windows reports it with slashes.
    if (path.resolve(rows[0]?.data_directory ?? "") !== data)
      throw new Error("another PostgreSQL answers on this port");
  });
}

/**
 * Ensures that the service's role exists, is not a superuser, and owns the database `name`.
 *
 * @param url the superuser's URL of another database of the server
 */
export async function ensureServiceDatabase(url: string, service: Login, name: string): Promise<void> {
  await withClient(url, async (client) => {
    const role = client.escapeIdentifier(service.role);
    const known = await client.query("select from pg_roles where rolname = $1", [service.role]);
    if (known.rowCount === 0) await client.query(`create role ${role} in role pg_monitor`);
    // Set again at each start, because its password file may have been lost.
    await client.query(`alter role ${role} with login password ${client.escapeLiteral(service.password)}`);
    const existing = await client.query("select from pg_database where datname = $1", [name]);
    if (existing.rowCount === 0)
      await client.query(`create database ${client.escapeIdentifier(name)} owner ${role}`);
  });
}

/** The time allowed for a connection, in milliseconds. PostgreSQL starts a process for it, which takes seconds on a busy machine. */
const CONNECT_MS = 10_000;

async function withClient(url: string, use: (client: pg.Client) => Promise<void>): Promise<void> {
  const client = new pg.Client({
    connectionString: url,
    connectionTimeoutMillis: CONNECT_MS,
    query_timeout: 30_000,
  });
  // Emitted if the server ends. The pending call rejects as well.
  client.on("error", () => {});
  try {
    await client.connect();
    await use(client);
  } finally {
    await client.end().catch(() => {});
  }
}
