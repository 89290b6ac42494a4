import { type Db, rows } from "../lib/pg/index.ts";
import { ofWebhook } from "./conditions.ts";

/** A retry is overdue when it was due longer ago than this, in seconds: an attempt under way takes most of it. */
export const OVERDUE_AFTER_S = 20;
/** Waiting deliveries of a webhook among which overdue ones are counted, the oldest first. */
const MAX_COUNTED = 10_000;
/** Hosts that an account of all overdue retries names. */
const MAX_HOSTS = 5;

const isOverdue = `due < now() - interval '${OVERDUE_AFTER_S} seconds'`;

/** Retries that were due and have not been sent. */
export interface OverdueRetries {
  count: number;
  /** The time at which the first of them was due. */
  oldestDue: Date;
}

/** A webhook's overdue retries, counted among its 10,000 oldest deliveries that wait for one; null when there are none. */
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

/** All overdue retries of webhooks that are not paused. */
export interface OverdueAccount extends OverdueRetries {
  webhooks: number;
  /** The hosts with the most of them, at most five, with how many each has. */
  hosts: Record<string, number>;
}

/** Counts all overdue retries, reading every waiting one: for once a minute. Null when there are none. */
export async function accountForOverdue(db: Db): Promise<OverdueAccount | null> {
  const found = await rows<OverdueRetries & { host: string; webhooks: number }>(
    db,
    `select split_part(w.target_url, '/', 3) as host, sum(r.count)::int as count,
        min(r.oldest) as "oldestDue", count(*)::int as webhooks
      from (
        select webhook_id, count(*) as count, min(due) as oldest from retries where ${isOverdue} group by webhook_id
      ) r join webhooks w on w.id = r.webhook_id and w.paused is null and w.deleted is null
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
