import type { AuditRecord, Facts } from "../audit/index.ts";
import type { Owned } from "../calls/index.ts";
import { present } from "../contract/present.ts";
import { type Db, rows } from "../lib/pg/index.ts";
import { webhookTarget } from "../webhooks/index.ts";
import type { DeliveryRow } from "./deliveries.ts";
import type { DeliveryFilter } from "./list.ts";

/** The entry about a delivery that was sent again. @param owner that of its webhook */
export function sentAgain(delivery: DeliveryRow, { customer, installedAppId: appId }: Owned): AuditRecord {
  return {
    action: "delivery_sent_again",
    target: { id: delivery.id, name: delivery.url, customer, appId, process: delivery.process },
    after: { webhook_id: String(delivery.webhookId) },
  };
}

/** The entries about deliveries that a filter found and that were sent again: one for each webhook. */
export async function sentManyAgain(
  trx: Db,
  filter: DeliveryFilter & { search: string | undefined },
  ids: readonly string[],
): Promise<AuditRecord[]> {
  const webhooks = await rows<
    Owned & { id: bigint; url: string; process: number; deliveries: number; oldest: string; newest: string }
  >(
    trx,
    `select w.id, w.url, w.customer, w.installed_app_id as "installedAppId", w.process, count(*)::int as deliveries,
        min(q.id::text) as oldest, max(q.id::text) as newest
      from queue q join webhooks w on w.id = q.webhook_id
      where q.id = any(:ids::uuid[]) group by w.id order by w.id`,
    { ids },
  );
  return webhooks.map((webhook) => ({
    action: "deliveries_sent_again",
    target: webhookTarget(webhook),
    after: {
      deliveries: webhook.deliveries,
      oldest_delivery_id: webhook.oldest,
      newest_delivery_id: webhook.newest,
      ...filterFacts(filter),
    },
  }));
}

/** A filter of deliveries, for the audit log. */
export function filterFacts({
  search,
  eventId,
  states,
  from,
  to,
}: Pick<DeliveryFilter, "eventId" | "states" | "from" | "to"> & { search: string | undefined }): Facts {
  const period = { from: from?.toISOString(), to: to?.toISOString() };
  return present({ search, event_id: eventId, states, ...period });
}
