import { type Db, rows } from "../lib/pg/index.ts";

/** Counts for metrics: open incidents by cause, and webhooks by health. */
export interface IncidentCounts {
  incidents: { cause: string; count: number }[];
  webhooks: { health: string; count: number }[];
}

/** Counts open incidents, and webhooks by their health. */
export async function readIncidentCounts(db: Db): Promise<IncidentCounts> {
  const incidents = await rows<IncidentCounts["incidents"][number]>(
    db,
    "select cause, count(*)::int as count from incidents where closed is null group by 1 order by 1",
  );
  const webhooks = await rows<IncidentCounts["webhooks"][number]>(
    db,
    `with troubled as (
        select h.health, count(*)::int as count from webhook_health h join webhooks w on w.id = h.webhook_id and w.deleted is null
        where h.health <> 'healthy' group by 1
      ),
      live as (
        select coalesce(sum(live + customers_live), 0) as n from processes
      )
      select 'healthy' as health, greatest(0, n - coalesce((select sum(count) from troubled), 0))::int as count from live
      union all
      select health, coalesce(count, 0) from unnest(array['degraded', 'failing']) health left join troubled using (health)`,
  );
  return { incidents, webhooks };
}
