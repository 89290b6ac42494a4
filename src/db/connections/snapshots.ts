import type { Db } from "../database.ts";
import { rows } from "../database.ts";

/** A snapshot held for longer keeps PostgreSQL from removing what claims have to pass by; in seconds. */
const LONG_S = 300;

/** Who holds a snapshot of the database. */
export interface LongSnapshot {
  pid: number;
  user: string;
  application: string;
  /** Address of the client; null for a connection of the same machine. */
  client: string | null;
  /** `active`, `idle in transaction` and the like; null where the role may not see it. */
  state: string | null;
  /** Since the transaction began, in seconds. */
  seconds: number;
}

/**
 * The oldest snapshot of this database that has been held for more than five minutes; null when there is none. Needs the
 * rights of `pg_monitor` to see the connections of other roles.
 */
export async function findLongSnapshot(db: Db, longS = LONG_S): Promise<LongSnapshot | null> {
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
