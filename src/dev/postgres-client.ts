import pg from "pg";

/** The only role: it owns the database and everything in it. */
export const ROLE = "webhook";

/** Connection address of a database of the embedded PostgreSQL. It holds the password: not for logs. */
export function addressOf(password: string, port: number, database: string): string {
  return `postgres://${ROLE}:${encodeURIComponent(password)}@127.0.0.1:${port}/${database}`;
}

/** Resolves when the PostgreSQL at `url` answers and its data folder is `data`; rejects otherwise. */
export async function assertServes(url: string, data: string): Promise<void> {
  await withClient(url, async (client) => {
    const { rows } = await client.query<{ data_directory: string }>("show data_directory");
    if (rows[0]?.data_directory !== data) throw new Error("another PostgreSQL answers on this port");
  });
}

/** Creates the database `name` unless it exists. `url` is that of another database of the same server. */
export async function ensureDatabase(url: string, name: string): Promise<void> {
  await withClient(url, async (client) => {
    const { rowCount } = await client.query("select from pg_database where datname = $1", [name]);
    if (rowCount === 0) await client.query(`create database ${client.escapeIdentifier(name)}`);
  });
}

async function withClient(url: string, use: (client: pg.Client) => Promise<void>): Promise<void> {
  const client = new pg.Client({
    connectionString: url,
    connectionTimeoutMillis: 2_000,
    query_timeout: 30_000,
  });
  // A server that dies under us emits this; the pending call rejects too.
  client.on("error", () => {});
  try {
    await client.connect();
    await use(client);
  } finally {
    await client.end().catch(() => {});
  }
}
