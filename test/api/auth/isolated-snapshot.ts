import type { Db } from "../../../src/db/database.ts";
import { type ChangedRow, watchRows } from "../../support/changed-rows.ts";

const COPY = `do $$ declare one name; begin
    for one in select relname from pg_class
      where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') and not relispartition
    loop
      execute format('create table kept.%I as table public.%I', one, one);
    end loop;
  end $$`;

/** The rows that calls change in a database that is made as it was again. */
export interface Snapshot {
  /** What has changed since it was last asked. */
  changes: () => Promise<ChangedRow[]>;
  /** Undoes changes. */
  undo: (changes: readonly ChangedRow[]) => Promise<void>;
}

/** Keeps a copy of the database as it is now. */
export async function keepRows(db: Db): Promise<Snapshot> {
  const changes = await watchRows(db);
  await db.raw(COPY);
  return {
    changes,
    async undo(all) {
      const tables = [...new Set(all.map(({ table }) => table))];
      if (tables.length === 0) return;
      const statements = tables.map((table) =>
        // It has the most rows, and none changes.
        table === "audit_log"
          ? `alter table audit_log disable trigger audit_log_kept;
            delete from audit_log where id not in (select id from kept.audit_log);
            alter table audit_log enable always trigger audit_log_kept`
          : `delete from ${table}; insert into ${table} overriding system value select * from kept.${table}`,
      );
      // Without triggers, so that neither a reference nor a note is made of it.
      await db.raw(["set local session_replication_role = replica", ...statements].join(";"));
    },
  };
}
