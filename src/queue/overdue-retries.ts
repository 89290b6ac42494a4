import { type Db, rows } from "../lib/pg/index.ts";
import { ofWebhook } from "./conditions.ts";
import { isHeld } from "./holds.ts";

/** The seconds after its due time from which a retry is overdue. An attempt in flight may take `DELIVERY_TIMEOUT`, 15 s by default. */
export const OVERDUE_AFTER_S = 20;
/** The maximum number of a webhook's retries, oldest first, that `readOverdueRetries` examines. */
const MAX_COUNTED = 10_000;
/** The maximum number of hosts in an `OverdueAccount`. */
const MAX_HOSTS = 5;

const isOverdue = `due < now() - interval '${OVERDUE_AFTER_S} seconds'`;

/** Retries that were due more than 20 s ago and have no recorded result. */
export interface OverdueRetries {
  count: number;
  /** The earliest due time. */
  oldestDue: Date;
}

/** Counts a webhook's overdue retries among its 10,000 oldest retries. Returns null if there are none. */
export async function readOverdueRetries(db: Db, webhookId: bigint): Promise<OverdueRetries | null> {
  const [found] = await rows<{ count: number; oldestDue: Date | null }>(
    db,
    `select count(*)::int as count, min(due) as "oldestDue" from (
        select due from retries t where ${ofWebhook("t", ":webhookId::bigint")}
        order by webhook_id, id limit ${MAX_COUNTED}
      ) waiting where ${isOverdue}`,
    { webhookId },
  );
  return found?.oldestDue ? { count: found.count, oldestDue: found.oldestDue } : null;
}

/** The overdue retries of all webhooks that are not paused or deleted, and whose receivers have not asked for a hold. */
export interface OverdueAccount extends OverdueRetries {
  webhooks: number;
  /** The number of overdue retries by host, for the up to five hosts with the most. */
  hosts: Record<string, number>;
}

/** Counts the overdue retries of all webhooks; null if there are none. Scans the whole of `retries`: call it once a minute at most. */
export async function accountForOverdue(db: Db): Promise<OverdueAccount | null> {
  const found = await rows<OverdueRetries & { host: string; webhooks: number }>(
    db,
    `select split_part(w.target_url, '/', 3) as host, sum(r.count)::int as count,
        min(r.oldest) as "oldestDue", count(*)::int as webhooks
      from (
        select webhook_id, count(*) as count, min(due) as oldest from retries where ${isOverdue} group by webhook_id
      ) r join webhooks w on w.id = r.webhook_id and w.paused is null and w.deleted is null
        and ${isHeld("w")} is not true
      group by host order by count desc, host`,
  );
  if (found.length === 0) return null;
  return {
    count: found.reduce((sum, { count }) => sum + count, 0),
    webhooks: found.reduce((sum, { webhooks }) => sum + webhooks, 0),
    oldestDue: new Date(Math.min(...found.map(({ oldestDue }) => oldestDue.getTime()))),
    hosts: Object.fromEntries(found.slice(0, MAX_HOSTS).map(({ host, count }) => [host, count])),
  };
}
