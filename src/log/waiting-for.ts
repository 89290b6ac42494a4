import { type Db, plainArray, rows } from "../lib/pg/index.ts";
import type { DeliveryRow } from "./deliveries.ts";

/** What an open delivery waits for. */
export type WaitingFor = "resume" | "receiver" | "rate_limit" | "host";

/** Incidents of hosts that hold a request until it times out, so that only a few are made at once. */
const HANGING = "'no_response', 'connection_timeout'";

/** What deliveries wait for that have not ended and are not waiting for the time of their next attempt, by webhook. */
export async function readWaitingFor(
  db: Db,
  deliveries: readonly DeliveryRow[],
): Promise<(delivery: DeliveryRow) => WaitingFor | undefined> {
  const now = Date.now();
  const waits = ({ finished, retryAt }: DeliveryRow) =>
    finished === null && (retryAt === null || retryAt.getTime() <= now);
  const ids = new Set(deliveries.filter(waits).map(({ webhookId }) => webhookId));
  if (ids.size === 0) return () => undefined;
  const found = await rows<{ id: bigint; waitingFor: WaitingFor | null }>(
    db,
    `select w.id, case when w.paused is not null then 'resume'
        when w.held_until > now() or w.receiver_rate is not null then 'receiver'
        when w.rate_limit is not null then 'rate_limit'
        when exists (
          select from incident_webhooks m join incidents i on i.id = m.incident_id
          where m.webhook_id = w.id and m.ended is null and i.cause in (${HANGING})
        ) then 'host' end as "waitingFor"
      from webhooks w where w.id = any(:ids::bigint[])`,
    { ids: plainArray([...ids]) },
  );
  const byWebhook = new Map(found.map(({ id, waitingFor }) => [id, waitingFor ?? undefined]));
  return (delivery) => (waits(delivery) ? byWebhook.get(delivery.webhookId) : undefined);
}
