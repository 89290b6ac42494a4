import { type Db, rows } from "../lib/pg/index.ts";

/**
 * The age of a snapshot, in seconds, from which it counts as long. It prevents the removal of dead rows, which claims
 * must then skip.
 */
const LONG_SNAPSHOT_SECONDS = 300;

/** A session that holds an old snapshot. */
export interface LongSnapshot {
  pid: number;
  user: string;
  application: string;
  /** The client's address; null for a local socket. */
  client: string | null;
  /** The session's state, such as `active` or `idle in transaction`; null without the right to see it. */
  state: string | null;
  /** The age of the transaction, in seconds. */
  seconds: number;
}

/**
 * The oldest snapshot in this database that is older than LONG_SNAPSHOT_SECONDS; null if there is none. Requires the rights of
 * `pg_monitor` to see sessions of other roles.
 */
export async function findLongSnapshot(db: Db, longS = LONG_SNAPSHOT_SECONDS): Promise<LongSnapshot | null> {
  const [found] = await rows<LongSnapshot>(
    db,
    `select pid, usename as "user", application_name as application, client_addr::text as client, state,
        extract(epoch from clock_timestamp() - xact_start)::int as seconds
      from pg_stat_activity
      where backend_xmin is not null and datname = current_database() and pid <> pg_backend_pid()
        and xact_start < clock_timestamp() - make_interval(secs => :longS::float8)
      order by age(backend_xmin) desc, xact_start limit 1`,
    { longS },
  );
  return found ?? null;
}
