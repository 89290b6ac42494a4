import path from "node:path";
import pg from "pg";

/** The superuser created by initdb. Used only while starting the embedded database. */
export const SUPERUSER = "webhook";
/** The role of the service. It owns its database and has no other privileges. */
export const SERVICE_ROLE = "webhook_service";

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
    if (!isDataFolder(rows[0]?.data_directory ?? "", data))
      throw new Error("another PostgreSQL answers on this port");
  });
}

/** Whether a PostgreSQL's `data_directory` is the folder `data`. On Windows, PostgreSQL reports it with slashes. */
export function isDataFolder(reported: string, data: string, { resolve } = path): boolean {
  return resolve(reported) === data;
}

/**
 * Ensures that the service's role exists, is not a superuser, and owns the database `name` with all its objects. In
 * databases of earlier versions the superuser owned everything.
 *
 * @param addressIn returns the superuser's URL of a database of the server
 */
export async function ensureServiceDatabase(
  addressIn: (database: string) => string,
  service: Login,
  name: string,
): Promise<void> {
  await withClient(addressIn("postgres"), async (client) => {
    const role = client.escapeIdentifier(service.role);
    const known = await client.query("select from pg_roles where rolname = $1", [service.role]);
    if (known.rowCount === 0) await client.query(`create role ${role}`);
    // Set again at each start, because its password file may have been lost.
    await client.query(
      `alter role ${role} with login nosuperuser nocreatedb nocreaterole noreplication nobypassrls
        password ${client.escapeLiteral(service.password)}`,
    );
    await client.query(`grant pg_monitor to ${role}`);
    const database = client.escapeIdentifier(name);
    const existing = await client.query("select from pg_database where datname = $1", [name]);
    const statement = existing.rowCount === 0 ? "create database" : "alter database";
    const owner = existing.rowCount === 0 ? "owner" : "owner to";
    await client.query(`${statement} ${database} ${owner} ${role}`);
  });
  await withClient(addressIn(name), async (client) => {
    const { rows } = await client.query<{ statement: string }>(OTHERS_OBJECTS, [service.role]);
    if (rows.length === 0) return;
    await client.query(["begin", ...rows.map(({ statement }) => statement), "commit"].join(";\n"));
  });
}

/**
 * Statements that transfer the objects of other owners in a database to a role. "reassign owned" cannot reassign
 * objects of initdb's superuser. Objects that follow their table (indexes, sequences of its columns, its row type)
 * are omitted.
 */
const OTHERS_OBJECTS = `
  with foreign_schema as (
    select oid, nspname from pg_namespace where nspname !~ '^pg_' and nspname <> 'information_schema'
  )
  select format('alter %s %s owner to %I', kind, name, $1::text) as statement from (
    select 1 as step, 'schema' as kind, format('%I', nspname) as name, nspowner as owner
      from pg_namespace where oid in (select oid from foreign_schema) and nspname <> 'public'
    union all
    select 2, case relkind when 'S' then 'sequence' when 'v' then 'view' when 'm' then 'materialized view' else 'table' end,
        c.oid::regclass::text, relowner
      from pg_class c
      where relnamespace in (select oid from foreign_schema) and relkind in ('r', 'p', 'v', 'm', 'S')
        and not exists (select from pg_depend d where d.classid = 'pg_class'::regclass and d.objid = c.oid
          and d.refclassid = 'pg_class'::regclass and d.deptype in ('a', 'i') and c.relkind = 'S')
    union all
    select 3, 'type', format_type(oid, null), typowner
      from pg_type where typnamespace in (select oid from foreign_schema) and typtype in ('d', 'e', 'r')
    union all
    select 4, 'routine', oid::regprocedure::text, proowner
      from pg_proc where pronamespace in (select oid from foreign_schema)
  ) objects
  where owner <> (select oid from pg_roles where rolname = $1::text)
  order by step`;

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
