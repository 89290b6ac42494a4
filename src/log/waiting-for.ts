import { openIncidentsOf } from "../incidents/index.ts";
import { type Db, plainArray, rows } from "../lib/pg/index.ts";
import type { DeliveryRow } from "./deliveries.ts";

/** What an open delivery waits for. */
export type WaitingFor = "resume" | "receiver" | "rate_limit" | "host";

/** Causes of incidents in which requests last until they time out, so that only a few are made at once. */
const HANGING: ReadonlySet<string | undefined> = new Set(["no_response", "connection_timeout"]);

/** What open deliveries wait for, other than the time of their next attempt. */
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
        when w.rate_limit is not null then 'rate_limit' end as "waitingFor"
      from webhooks w where w.id = any(:ids::bigint[])`,
    { ids: plainArray([...ids]) },
  );
  const incidents = await openIncidentsOf(db, "everything", ids);
  const hostOf = (id: bigint) => (HANGING.has(incidents.get(id)?.cause) ? "host" : undefined);
  const byWebhook = new Map(found.map(({ id, waitingFor }) => [id, waitingFor ?? hostOf(id)]));
  return (delivery) => (waits(delivery) ? byWebhook.get(delivery.webhookId) : undefined);
}
