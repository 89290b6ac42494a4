import { count, type Db } from "../lib/pg/index.ts";

/** The number of days after its close for which a run with attempts is kept. A run without attempts is kept for one day. */
const RETENTION_DAYS = 7;

/** Deletes runs that have been closed for longer than they are kept, at most `most`. Returns their number. */
export function deleteOldRuns(db: Db, most: number): Promise<number> {
  return count(
    db,
    `delete from runs where id in (
        select r.id from runs r
        where r.closed < now() - case when r.sent = 0 then interval '1 day' else make_interval(days => :busy::int) end
        order by id limit :most::int)`,
    { busy: RETENTION_DAYS, most },
  );
}
