import { count, type Db } from "../lib/pg/index.ts";

/** The number of days for which runs with attempts are kept. Runs without attempts are kept for one day. */
const RETENTION_DAYS = 7;

/** Deletes closed runs that are older than their retention, at most `most`. Returns their number. */
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
