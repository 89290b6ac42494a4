import type { Bindings } from "./database.ts";
import type { DeliveryStateName } from "./deliveries.ts";
import { firstIdOf } from "./retention.ts";
import { type Condition, type Scope, webhookIn } from "./scope.ts";

/** Which deliveries are meant; what is left out does not restrict. */
export interface DeliveryFilter {
  deliveryId?: string | undefined;
  webhookId?: bigint | undefined;
  eventId?: string | undefined;
  /** Number of the WebhookProcess. */
  process?: number | undefined;
  states?: readonly DeliveryStateName[] | undefined;
  /** Created at this time or later. */
  from?: Date | undefined;
  /** Created before this time. */
  to?: Date | undefined;
  /** Only those older than this id: where the page before ended. */
  before?: string | undefined;
  /** Only those newer than this id, and of these the ones next to it: a page back. */
  after?: string | undefined;
}

/**
 * How much later than its `created` a delivery's id may be, in milliseconds: `created` is the time at which its
 * transaction began.
 */
const ID_LAG_MS = 60_000;

/**
 * A query for the newest deliveries of a scope that a filter lets through, or for the oldest `after` one, with the
 * columns of the table, and its values.
 *
 * Each part reads an index in the order of ids and stops at the limit, whatever else is in the table: one part a
 * state, since several states together have no index in that order; and for an event type or an app one a webhook, of
 * those webhooks that have the newest deliveries.
 */
export function firstOf(
  scope: Scope,
  filter: DeliveryFilter,
  limit: number,
): { sql: string; bindings: Bindings } {
  const { conditions, bindings } = restrictions(filter);
  const webhooks = webhooksOf(scope, filter);
  Object.assign(bindings, webhooks?.bindings, { limit });
  const order = filter.after === undefined ? "desc" : "asc";
  const read = (all: readonly string[], most: string) => byState(all, filter.states, order, most);
  if (webhooks === null) return { sql: read(conditions, ":limit::int"), bindings };
  if (filter.webhookId !== undefined) {
    // Looked up first: the deliveries of a webhook that is not meant are not read at all.
    const webhook = `d.webhook_id = (select p.id from webhooks p where p.id = :webhookId::bigint and ${webhooks.sql})`;
    return { sql: read([...conditions, webhook], ":limit::int"), bindings };
  }
  if (filter.deliveryId !== undefined || filter.eventId !== undefined) {
    const webhook = `exists (select from webhooks p where p.id = d.webhook_id and ${webhooks.sql})`;
    return { sql: read([...conditions, webhook], ":limit::int"), bindings };
  }
  const ofWebhook = (webhook: string) => [...conditions, `d.webhook_id = ${webhook}`];
  return {
    // The deliveries of a page are of at most as many webhooks as it has rows.
    sql: `
      select found.* from (
        select meant.id, first.id as first
        from (select p.id from webhooks p where ${webhooks.sql}) meant
          cross join lateral (${read(ofWebhook("meant.id"), "1")}) first
        order by first.id ${order} limit :limit::int
      ) webhook cross join lateral (${read(ofWebhook("webhook.id"), ":limit::int")}) found
      order by found.id ${order} limit :limit::int`,
    bindings,
  };
}

/** The webhooks `p` that scope and event type let through; null when these restrict nothing. */
function webhooksOf(scope: Scope, { process }: DeliveryFilter): Condition | null {
  if (scope === "everything" && process === undefined) return null;
  const inScope = webhookIn(scope, "p");
  if (process === undefined) return inScope;
  return {
    sql: `p.process = :process::int and ${inScope.sql}`,
    bindings: { process, ...inScope.bindings },
  };
}

function restrictions(filter: DeliveryFilter): { conditions: string[]; bindings: Bindings } {
  const { deliveryId, webhookId, eventId, from, to, before, after } = filter;
  const conditions: string[] = [];
  const bindings: Bindings = {};
  function restrict(condition: string, values: Bindings): void {
    conditions.push(condition);
    Object.assign(bindings, values);
  }
  if (deliveryId !== undefined) restrict("d.id = :deliveryId::uuid", { deliveryId });
  if (webhookId !== undefined) restrict("d.webhook_id = :webhookId::bigint", { webhookId });
  if (eventId !== undefined) restrict("d.event_id = :eventId::uuid", { eventId });
  if (before !== undefined) restrict("d.id < :before::uuid", { before });
  if (after !== undefined) restrict("d.id > :after::uuid", { after });
  if (from) restrict("d.created >= :from and d.id >= :fromId::uuid", { from, fromId: firstIdOf(from) });
  if (to) {
    const toId = firstIdOf(new Date(to.getTime() + ID_LAG_MS));
    restrict("d.created < :to and d.id < :toId::uuid", { to, toId });
  }
  return { conditions, bindings };
}

/** States stand in the text: partial indexes are for what the planner can read. */
function byState(
  conditions: readonly string[],
  states: readonly DeliveryStateName[] = [],
  order: "asc" | "desc",
  limit: string,
): string {
  const part = (all: readonly string[]) =>
    `select d.* from deliveries d ${all.length > 0 ? `where ${all.join(" and ")}` : ""}
      order by d.id ${order} limit ${limit}`;
  const parts = [...new Set(states)].sort().map((state) => part([...conditions, `d.state = '${state}'`]));
  const [only = part(conditions), ...more] = parts;
  if (more.length === 0) return only;
  return `select * from (${parts.map((each) => `(${each})`).join(" union all ")}) d order by d.id ${order} limit ${limit}`;
}
