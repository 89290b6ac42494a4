import { type Db, rows } from "../../src/lib/pg/database.ts";

/** The delay of retries after their due time, in seconds, including due retries that have not started. */
export interface RetryDelays {
  started: number;
  p99: number;
  max: number;
}

/**
 * @param spacing as the service has it; `firstS` in seconds
 * @param except webhooks whose URL matches this pattern of `like` are left out
 */
export async function readRetryDelays(
  db: Db,
  spacing: { firstS: number; coefficient: number },
  except = "",
): Promise<RetryDelays> {
  const [found] = await rows<{ started: number; p99: number | null; max: number | null }>(
    db,
    `with chosen as (
        select d.id from all_deliveries d join webhooks w on w.id = d.webhook_id where w.url not like :except
      ),
      tried as (
        select delivery_id, number, started, started + duration_ms * interval '1 ms' as ended
        from all_attempts where delivery_id in (select id from chosen)
      ),
      late as (
        select extract(epoch from n.started - t.ended) - :firstS::float8 * power(:coefficient::float8, t.number - 1) as s
        from tried t join tried n on n.delivery_id = t.delivery_id and n.number = t.number + 1
        union all
        select extract(epoch from now() - due) from retries where due < now() and id in (select id from chosen)
      )
      select (select count(*) from tried where number > 1)::int as started,
        (select percentile_cont(0.99) within group (order by s) from late)::float8 as p99,
        (select max(s) from late)::float8 as max`,
    { ...spacing, except },
  );
  return { started: found?.started ?? 0, p99: found?.p99 ?? 0, max: found?.max ?? 0 };
}
