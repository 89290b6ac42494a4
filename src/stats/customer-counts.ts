import type { CustomerCounts } from "../../gen/webhook/v1/customer_pb.ts";
import { ownedIn, type Scope, webhookIn } from "../calls/index.ts";
import type { FieldsOf } from "../contract/present.ts";
import { type Db, rows } from "../lib/pg/index.ts";
import { ofWebhook } from "../queue/index.ts";

/** The maximum number of rows of a kind that are counted of a customer. */
const MAX_COUNTED = 1_000;

/** What customers have that a scope can access, in their order: `queue` is pending, `retries` is retrying. */
export async function countOfCustomers(
  db: Db,
  scope: Scope,
  customers: readonly string[],
): Promise<FieldsOf<CustomerCounts>[]> {
  const inScope = webhookIn(scope, "w");
  const ownKey = ownedIn(scope, "k");
  const counted = (table: "queue" | "retries") => `(
    select count(*)::int from (
      select from unnest(w.ids) own(id) cross join lateral (
        select from ${table} t where ${ofWebhook("t", "own.id")} limit ${MAX_COUNTED}
      ) each limit ${MAX_COUNTED}
    ) counted)`;
  const ofHealth = (health: string) =>
    `(select count(*)::int from webhook_health h where h.webhook_id = any(w.ids) and h.health = '${health}')`;
  // The counters are over all apps.
  const webhooks =
    scope === "everything" || (scope.installedAppId === null && scope.processes.length === 0)
      ? "(select coalesce(sum(p.live), 0)::int from customer_processes p where p.customer = c.id)"
      : "cardinality(w.ids)";
  return rows(
    db,
    `select ${webhooks} as webhooks, ${ofHealth("degraded")} as "degradedWebhooks", ${ofHealth("failing")} as "failingWebhooks",
        (select count(*)::int from (
          select from api_keys k where k.customer = c.id and k.revoked is null and ${ownKey.sql} limit ${MAX_COUNTED}
        ) keys) as "apiKeys",
        ${counted("queue")} as "pendingDeliveries", ${counted("retries")} as "retryingDeliveries"
      from unnest(:customers::text[]) with ordinality c(id, place)
        cross join lateral (
          select array(
            select w.id from webhooks w where w.customer = c.id and w.deleted is null and ${inScope.sql}
            order by w.process, w.id limit ${MAX_COUNTED}
          ) as ids
        ) w
      order by c.place`,
    { ...inScope.bindings, ...ownKey.bindings, customers },
  );
}
