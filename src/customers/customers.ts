import { isDeepStrictEqual } from "node:util";
import type { Knex } from "knex";
import type { Tables } from "knex/types/tables.js";
import { DomainError } from "../contract/errors.ts";
import { count, type Db, rows, run } from "../lib/pg/index.ts";
import { requireFeature } from "../schema/index.ts";

/** Limits of a customer over all its keys; null for none. */
export interface CustomerLimits {
  webhookQuota: number | null;
  eventsPerSecond: number | null;
  pendingQuota: number | null;
}

/** A customer. */
export interface CustomerRow extends CustomerLimits {
  /** The user_id of its events. */
  id: string;
  displayName: string | null;
  metadata: Readonly<Record<string, string>>;
  /** Null if only events name it. */
  created: Date | null;
  paused: Date | null;
  /** Null if it was never erased. */
  erasureStarted: Date | null;
  /** Null while an erasure is running. */
  erasureFinished: Date | null;
  erasedWebhooks: bigint;
  erasedKeys: bigint;
  erasedPayloads: bigint;
  erasedDeliveries: bigint;
}

/**
 * Makes the customer of a new API key, if it does not exist. Requires the transaction that stores the key.
 *
 * @throws FeatureUnknownError FAILED_PRECONDITION if a live process of an older release would deliver its events to others
 */
export async function makeCustomer(trx: Db, customer: string): Promise<void> {
  await requireFeature(trx, "customers");
  await insertCustomer(trx, customer);
}

async function insertCustomer(trx: Db, customer: string): Promise<void> {
  await run(trx, trx("customers").insert({ id: customer }).onConflict("id").ignore());
}

/** The customers with these ids, in this order. A customer without a row has no limits and no time of creation. */
export function readCustomers(db: Db, ids: readonly string[]): Promise<CustomerRow[]> {
  return rows<CustomerRow>(
    db,
    `select n.id, c.display_name as "displayName", coalesce(c.metadata, '{}') as metadata, c.webhook_quota as "webhookQuota",
        c.events_per_second as "eventsPerSecond", c.pending_quota as "pendingQuota", c.created, c.paused,
        c.erasure_started as "erasureStarted", c.erasure_finished as "erasureFinished",
        coalesce(c.erased_webhooks, 0) as "erasedWebhooks", coalesce(c.erased_keys, 0) as "erasedKeys",
        coalesce(c.erased_payloads, 0) as "erasedPayloads", coalesce(c.erased_deliveries, 0) as "erasedDeliveries"
      from unnest(:ids::text[]) with ordinality n(id, place) left join customers c on c.id = n.id order by n.place`,
    { ids },
  );
}

/** A customer with or without a row. */
export async function readCustomer(db: Db, id: string): Promise<CustomerRow> {
  return (await readCustomers(db, [id]))[0] as CustomerRow;
}

/**
 * A customer with a row or an event.
 *
 * @throws DomainError NOT_FOUND if there is neither
 */
export async function requiredCustomer(db: Db, id: string): Promise<CustomerRow> {
  const customer = await readCustomer(db, id);
  if (customer.created) return customer;
  if ((await rows(db, "select 1 from events where user_id = :id limit 1", { id })).length > 0)
    return customer;
  // The error never repeats the id, because it may be personal data.
  throw new DomainError(
    "CUSTOMER_NOT_FOUND",
    "customer: neither an API key, a setting nor an event names this customer; list the customers to find their user_id",
  );
}

/**
 * A customer, locked until the end of the transaction: other changes of it wait. Callers lock it after registrations, and before all
 * other rows.
 *
 * @param isNew whether to create the customer if it has neither a row nor an event. Defaults to false
 * @throws DomainError NOT_FOUND if it has neither, and is not to be created
 */
export async function lockCustomer(trx: Db, id: string, isNew = false): Promise<CustomerRow> {
  const lock = () => count(trx, "select from customers where id = :id for no key update", { id });
  if ((await lock()) === 0) {
    if (!isNew) await requiredCustomer(trx, id);
    await insertCustomer(trx, id);
    await lock();
  }
  return readCustomer(trx, id);
}

/** Changes columns of a locked customer. Returns the customer. */
export async function changeCustomer(
  trx: Db,
  id: string,
  changes: Knex.ResolveTableType<Tables["customers"], "update">,
): Promise<CustomerRow> {
  await run(trx, trx("customers").where({ id }).update(changes));
  return readCustomer(trx, id);
}

/** What UpdateCustomer replaces. */
export type CustomerSettings = CustomerLimits & Pick<CustomerRow, "displayName" | "metadata">;

/** Replaces settings of a locked customer. Settings that are left out stay. Returns the customer; `before` itself if nothing changes. */
export async function changeSettings(
  trx: Db,
  before: CustomerRow,
  settings: Partial<CustomerSettings>,
): Promise<CustomerRow> {
  const after = { ...before, ...settings };
  if (isDeepStrictEqual(before, after)) return before;
  return changeCustomer(trx, before.id, {
    display_name: after.displayName,
    metadata: after.metadata,
    webhook_quota: after.webhookQuota,
    events_per_second: after.eventsPerSecond,
    pending_quota: after.pendingQuota,
  });
}

/**
 * Rejects webhooks of a customer beyond its quota. Requires the lock of registrations, with which the customer's webhooks are counted.
 *
 * @param added the number of webhooks that are not stored yet
 * @throws DomainError FAILED_PRECONDITION
 */
export async function assertCustomerQuota(trx: Db, customer: string, added: number): Promise<void> {
  const [found] = await rows<{ quota: number; used: number }>(
    trx,
    `select c.webhook_quota as quota,
        (select coalesce(sum(p.live), 0)::int from customer_processes p where p.customer = c.id) as used
      from customers c where c.id = :customer and c.webhook_quota is not null`,
    { customer },
  );
  if (!found || found.used + added <= found.quota) return;
  const { quota, used } = found;
  throw new DomainError(
    "TOO_MANY_WEBHOOKS",
    `the customer may have ${quota} webhooks over all its API keys, and would have ${used + added}; delete unused ones and try again, or ask the operator to raise the quota with UpdateCustomer`,
    { metadata: { quota: "customer_webhooks", limit: String(quota) } },
  );
}
