import type { Bindings } from "./database.ts";
import type { DeliveryStateName } from "./deliveries.ts";
import { firstIdOf } from "./retention.ts";

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
 * A query for the newest deliveries that a filter lets through, or for the oldest `after` one, with the columns of the
 * table, and its values.
 *
 * Each part reads an index in the order of ids and stops at the limit, whatever else is in the table: one part a
 * state, since several states together have no index in that order; and for an event type one a webhook, of those
 * webhooks that have the newest deliveries.
 */
export function firstOf(filter: DeliveryFilter, limit: number): { sql: string; bindings: Bindings } {
  const { conditions, bindings } = restrictions(filter);
  bindings.limit = limit;
  const order = filter.after === undefined ? "desc" : "asc";
  const read = (all: readonly string[], most: string) => byState(all, filter.states, order, most);
  if (filter.process === undefined || filter.webhookId !== undefined) {
    return { sql: read(conditions, ":limit::int"), bindings };
  }
  const ofWebhook = (webhook: string) => [...conditions, `d.webhook_id = ${webhook}`];
  return {
    // The deliveries of a page are of at most as many webhooks as it has rows.
    sql: `
      select found.* from (
        select of_process.id, first.id as first
        from (select id from webhooks where process = :process::int) of_process
          cross join lateral (${read(ofWebhook("of_process.id"), "1")}) first
        order by first.id ${order} limit :limit::int
      ) webhook cross join lateral (${read(ofWebhook("webhook.id"), ":limit::int")}) found
      order by found.id ${order} limit :limit::int`,
    bindings,
  };
}

function restrictions(filter: DeliveryFilter): { conditions: string[]; bindings: Bindings } {
  const { deliveryId, webhookId, eventId, process, from, to, before, after } = filter;
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
  if (process !== undefined) {
    bindings.process = process;
    if (webhookId !== undefined) {
      conditions.push(
        "exists (select from webhooks p where p.id = d.webhook_id and p.process = :process::int)",
      );
    }
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
