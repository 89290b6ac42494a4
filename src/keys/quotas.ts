import { stateNotFit } from "../calls/errors/index.ts";
import { type ApiKeyRow, reachesKey, type Scope } from "../calls/index.ts";
import { DomainError } from "../contract/errors.ts";
import { assertCustomerQuota } from "../customers/index.ts";
import { type Db, gathering, rows, run, transactionWithRetry } from "../lib/pg/index.ts";
import { API_KEY_SELECTION, lockApiKey, type Quotas } from "./api-keys.ts";

/**
 * Replaces the quotas of a key.
 *
 * @returns the key as it was before, and as it is now
 * @throws DomainError NOT_FOUND if the scope has no such key; FAILED_PRECONDITION if it is revoked
 */
export function setQuotas(
  db: Db,
  scope: Scope,
  id: string,
  { webhookQuota, eventsPerSecond }: Quotas,
): Promise<{ before: ApiKeyRow; key: ApiKeyRow }> {
  return transactionWithRetry(db, async (trx) => {
    const before = await lockApiKey(trx, scope, id);
    if (before.revoked)
      throw stateNotFit(
        `api_key_id: the API key ${id} is revoked, so that quotas would have no effect; choose an active key`,
      );
    const [key] = await run(
      trx,
      trx("api_keys")
        .where({ id })
        .update({ webhook_quota: webhookQuota, events_per_second: eventsPerSecond })
        .returning<ApiKeyRow[]>(API_KEY_SELECTION),
    );
    return { before, key: key as ApiKeyRow };
  });
}

/**
 * Rejects webhooks beyond the quota of the key that they belong to. Requires a transaction, to whose end other
 * transfers of webhooks to the key wait.
 *
 * @param added the number of webhooks that are not stored yet
 * @param scope the error names the key only if the scope has it. Defaults to everything
 * @throws DomainError FAILED_PRECONDITION for the key's quota, or that of its customer
 */
export async function assertWebhookQuota(
  trx: Db,
  apiKeyId: string,
  added: number,
  scope: Scope = "everything",
): Promise<void> {
  // A separate statement: one that has waited for a lock counts webhooks as they were before the wait.
  const [key] = await run(
    trx,
    trx("api_keys")
      .select("name", "customer", { quota: "webhook_quota", installedAppId: "installed_app_id" })
      .where({ id: apiKeyId })
      .forShare(),
  );
  if (!key) return;
  // What moves from key to key stays with the customer.
  if (key.customer !== null && added > 0) await assertCustomerQuota(trx, key.customer, added);
  if (key.quota === null) return;
  const [{ used } = { used: 0 }] = await rows<{ used: number }>(
    trx,
    "select count(*)::int as used from webhooks where api_key_id = :apiKeyId::uuid and deleted is null",
    { apiKeyId },
  );
  if (used + added <= key.quota) return;
  const name = reachesKey(scope, key) ? ` “${key.name}”` : " that owns the webhook";
  throw new DomainError(
    "TOO_MANY_WEBHOOKS",
    `the API key${name} may own ${key.quota} webhooks, and would own ${used + added}; delete unused ones and try again, or ask an administrator to raise the quota with SetApiKeyQuotas`,
    { metadata: { quota: "webhooks", limit: String(key.quota) } },
  );
}

/** A request to publish one event. */
interface EventRequest {
  /** The id of the key, or the customer. */
  of: string;
  /** Events per second. */
  rate: number;
}

/** Whether an event may be published; if not, the time until the next may be, in milliseconds. */
type Grant = { retryAfterMs: number } | null;

/** The maximum number of events per statement. */
const MAX_GROUP = 5_000;

/** The quotas of events: whose they are, where their tokens are, and the method that raises them. */
const QUOTAS = {
  key: {
    ...{ table: "event_quotas", column: "api_key_id", type: "uuid", metadata: "events_per_second" },
    ...{ owner: "the API key's", remedy: "ask an administrator to raise the quota with SetApiKeyQuotas" },
  },
  customer: {
    ...{ table: "customer_event_quotas", column: "customer", type: "text" },
    ...{ metadata: "customer_events_per_second", owner: "the customer's" },
    remedy: "ask the operator to raise the quota with UpdateCustomer",
  },
};
type QuotaKind = (typeof QUOTAS)[keyof typeof QUOTAS];

/**
 * Asks whether a key may publish one event now: by its quota of events per second, and by that of its customer. Concurrent calls share
 * a statement, which all processes take turns with: a quota holds for them together.
 *
 * @returns undefined for a key without a quota
 * @throws DomainError RESOURCE_EXHAUSTED if a quota is used up
 */
export type EventQuota = (
  key: Pick<ApiKeyRow, "id" | "eventsPerSecond"> &
    Partial<Pick<ApiKeyRow, "customer" | "customerEventsPerSecond">>,
) => Promise<void> | undefined;

/** Creates the check of quotas of events per second. Keys without one cost nothing. */
export function createEventQuota(db: Db): EventQuota {
  const ofKey = createTake(db, QUOTAS.key);
  const ofCustomer = createTake(db, QUOTAS.customer);
  return ({ id, eventsPerSecond, customer, customerEventsPerSecond = null }) => {
    const own = eventsPerSecond === null ? undefined : ofKey(id, eventsPerSecond);
    if (!customer || customerEventsPerSecond === null) return own;
    const rate = customerEventsPerSecond;
    return own ? own.then(() => ofCustomer(customer, rate)) : ofCustomer(customer, rate);
  };
}

/** Creates what takes a token of a quota. */
function createTake(db: Db, kind: QuotaKind): (of: string, rate: number) => Promise<void> {
  const ask = gathering((requests: readonly EventRequest[]) => grant(db, kind, requests), {
    most: MAX_GROUP,
    atOnce: 1,
  });
  return async (of, rate) => {
    const refused = await ask({ of, rate });
    if (!refused) return;
    throw new DomainError(
      "QUOTA_EXCEEDED",
      `${kind.owner} quota of ${rate} events per second is used up; publish the event again in ${refused.retryAfterMs} ms, or ${kind.remedy}`,
      {
        retryAfterMs: refused.retryAfterMs,
        metadata: { quota: kind.metadata, limit: String(rate) },
      },
    );
  };
}

/** The tokens of bucket `q` at the time of a request: what has been added since the last one, at most a second's. */
const REFILLED = `least(excluded.rate,
  q.tokens + excluded.rate * greatest(0, extract(epoch from excluded.at - q.at))::float8)`;
/** The new time of bucket `q`. One more than a minute ahead is from before the clock of the database was set back. */
const REFILLED_AT = `case when q.at > excluded.at + interval '1 minute' then excluded.at
  else greatest(q.at, excluded.at) end`;
const GRANTED = `least(excluded.requested, floor(${REFILLED}))`;

/** Takes the available tokens for the events of each key or customer; its first events get them. */
async function grant(
  db: Db,
  { table, column, type }: QuotaKind,
  requests: readonly EventRequest[],
): Promise<Grant[]> {
  const byOwner = new Map<string, { rate: number; requested: number }>();
  for (const { of, rate } of requests)
    byOwner.set(of, { rate, requested: (byOwner.get(of)?.requested ?? 0) + 1 });
  const all = [...byOwner];
  // Sorted, so that concurrent statements cannot deadlock.
  const granted = await rows<{ of: string; granted: number; tokens: number }>(
    db,
    `insert into ${table} as q (${column}, tokens, at, rate, requested, granted)
      select id, rate - least(requested, rate), clock_timestamp(), rate, requested, least(requested, rate)
      from unnest(:ids::${type}[], :rates::int[], :requested::int[]) as g(id, rate, requested) order by id
      on conflict (${column}) do update set tokens = ${REFILLED} - ${GRANTED}, at = ${REFILLED_AT},
        rate = excluded.rate, requested = excluded.requested, granted = ${GRANTED}
      returning ${column} as "of", granted, tokens`,
    {
      ids: all.map(([id]) => id),
      rates: all.map(([, { rate }]) => rate),
      requested: all.map(([, { requested }]) => requested),
    },
  );
  const left = new Map(granted.map((row) => [row.of, row]));
  return requests.map(({ of, rate }) => {
    const bucket = left.get(of);
    if (!bucket) throw new Error("the database did not answer for a quota");
    bucket.granted -= 1;
    if (bucket.granted >= 0) return null;
    // One refused event after the other may be published as tokens are added.
    return { retryAfterMs: Math.ceil((1_000 * (-bucket.granted - bucket.tokens)) / rate) };
  });
}
