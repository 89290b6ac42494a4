import { type Db, rows } from "../lib/pg/index.ts";

/** A webhook whose deliveries its circuit breaker holds back. */
export interface HeldBack {
  webhookId: bigint;
  /** The normalised URL that requests go to. */
  targetUrl: string;
  state: "open" | "disabled";
  since: Date;
  reason: string;
  nextProbe: Date | null;
  /** The number of all webhooks held back, also those beyond the limit. The same in every row. */
  total: number;
}

/** Lists webhooks that their circuit breakers hold back, by `since`, latest first. */
export function listHeldBack(db: Db, limit: number): Promise<HeldBack[]> {
  return rows<HeldBack>(
    db,
    `select b.webhook_id as "webhookId", w.target_url as "targetUrl", b.state, b.since, b.reason,
        greatest(b.next_probe, w.held_until) as "nextProbe", count(*) over ()::int as total
      from webhook_breakers b join webhooks w on w.id = b.webhook_id
      where b.state <> 'closed' and w.paused is not null and w.deleted is null
      order by b.since desc, b.webhook_id limit :limit::int`,
    { limit },
  );
}
