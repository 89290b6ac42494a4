import { type Db, rows } from "../../src/lib/pg/database.ts";

/** A row that a statement has changed, as JSON before and after; null for none. */
export interface ChangedRow {
  table: string;
  before: string | null;
  after: string | null;
}

/** Notes each row that changes. That a key was used is no change. */
const WATCH = `
  create schema kept;
  create table kept.changes (n bigint generated always as identity primary key, name name, before jsonb, after jsonb);
  create function kept.note() returns trigger language plpgsql as $$
  declare
    before jsonb := to_jsonb(old) - 'last_used';
    after jsonb := to_jsonb(new) - 'last_used';
  begin
    if before is distinct from after then
      insert into kept.changes (name, before, after) values (tg_argv[0], before, after);
    end if;
    return null;
  end $$;
  do $$ declare one name; begin
    for one in select relname from pg_class
      where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') and not relispartition
    loop
      execute format('create trigger noted after insert or update or delete on %I
        for each row execute function kept.note(%L)', one, one);
    end loop;
  end $$`;

/** Has every change of rows noted, until the database is dropped. Answers what has changed since it was last asked. */
export async function watchRows(db: Db): Promise<() => Promise<ChangedRow[]>> {
  await db.raw(WATCH);
  let seen = 0n;
  return async () => {
    const found = await rows<ChangedRow & { n: bigint }>(
      db,
      `select n, name as "table", before::text, after::text from kept.changes where n > :seen::bigint order by n`,
      { seen: String(seen) },
    );
    seen = BigInt(found.at(-1)?.n ?? seen);
    return found.map(({ table, before, after }) => ({ table, before, after }));
  };
}
