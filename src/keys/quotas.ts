import { stateNotFit } from "../calls/errors/index.ts";
import { type ApiKeyRow, reachesKey, type Scope } from "../calls/index.ts";
import { DomainError } from "../contract/errors.ts";
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
 * @throws DomainError FAILED_PRECONDITION
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
  if (!key || key.quota === null) return;
  const [{ used } = { used: 0 }] = await rows<{ used: number }>(
    trx,
    "select count(*)::int as used from webhooks where api_key_id = :apiKeyId::uuid and deleted is null",
    { apiKeyId },
  );
  if (used + added <= key.quota) return;
  const name = reachesKey(scope, key) ? ` “${key.name}”` : " that owns the webhook";
  throw new DomainError(
    "FAILED_PRECONDITION",
    `the API key${name} may own ${key.quota} webhooks, and would own ${used + added}; delete unused ones and try again, or ask an administrator to raise the quota with SetApiKeyQuotas`,
    { reason: "TOO_MANY_WEBHOOKS", metadata: { quota: "webhooks", limit: String(key.quota) } },
  );
}

/** A request of a key to publish one event. */
interface EventRequest {
  apiKeyId: string;
  /** Events per second. */
  rate: number;
}

/** Whether an event may be published; if not, the time until the next may be, in milliseconds. */
type Grant = { retryAfterMs: number } | null;

/** The maximum number of events per statement. */
const MAX_GROUP = 5_000;

/**
 * Asks whether a key with a quota of events per second may publish one event now. Concurrent calls share a statement,
 * which all processes take turns with: a quota holds for them together.
 *
 * @returns undefined for a key without a quota
 * @throws DomainError RESOURCE_EXHAUSTED if the quota is used up
 */
export type EventQuota = (key: Pick<ApiKeyRow, "id" | "eventsPerSecond">) => Promise<void> | undefined;

/** Creates the check of quotas of events per second. Keys without one cost nothing. */
export function createEventQuota(db: Db): EventQuota {
  const ask = gathering((requests: readonly EventRequest[]) => grant(db, requests), {
    most: MAX_GROUP,
    atOnce: 1,
  });
  async function take(id: string, eventsPerSecond: number): Promise<void> {
    const refused = await ask({ apiKeyId: id, rate: eventsPerSecond });
    if (!refused) return;
    throw new DomainError(
      "RESOURCE_EXHAUSTED",
      `the API key's quota of ${eventsPerSecond} events per second is used up; publish the event again in ${refused.retryAfterMs} ms, or ask an administrator to raise the quota with SetApiKeyQuotas`,
      {
        reason: "QUOTA_EXCEEDED",
        retryAfterMs: refused.retryAfterMs,
        metadata: { quota: "events_per_second", limit: String(eventsPerSecond) },
      },
    );
  }

  return ({ id, eventsPerSecond }) => (eventsPerSecond === null ? undefined : take(id, eventsPerSecond));
}

/** The tokens of bucket `q` at the time of a request: what has been added since the last one, at most a second's. */
const REFILLED = `least(excluded.rate,
  q.tokens + excluded.rate * greatest(0, extract(epoch from excluded.at - q.at))::float8)`;
/** The new time of bucket `q`. One more than a minute ahead is from before the clock of the database was set back. */
const REFILLED_AT = `case when q.at > excluded.at + interval '1 minute' then excluded.at
  else greatest(q.at, excluded.at) end`;
const GRANTED = `least(excluded.requested, floor(${REFILLED}))`;

/** Takes the available tokens for the events of each key; the first events of a key get them. */
async function grant(db: Db, requests: readonly EventRequest[]): Promise<Grant[]> {
  const byKey = new Map<string, { rate: number; requested: number }>();
  for (const { apiKeyId, rate } of requests) {
    const known = byKey.get(apiKeyId);
    byKey.set(apiKeyId, { rate, requested: (known?.requested ?? 0) + 1 });
  }
  const all = [...byKey];
  // Sorted, so that concurrent statements cannot deadlock.
  const granted = await rows<{ apiKeyId: string; granted: number; tokens: number }>(
    db,
    `insert into event_quotas as q (api_key_id, tokens, at, rate, requested, granted)
      select id, rate - least(requested, rate), clock_timestamp(), rate, requested, least(requested, rate)
      from unnest(:ids::uuid[], :rates::int[], :requested::int[]) as g(id, rate, requested) order by id
      on conflict (api_key_id) do update set tokens = ${REFILLED} - ${GRANTED}, at = ${REFILLED_AT},
        rate = excluded.rate, requested = excluded.requested, granted = ${GRANTED}
      returning api_key_id as "apiKeyId", granted, tokens`,
    {
      ids: all.map(([id]) => id),
      rates: all.map(([, { rate }]) => rate),
      requested: all.map(([, { requested }]) => requested),
    },
  );
  const left = new Map(granted.map((row) => [row.apiKeyId, row]));
  return requests.map(({ apiKeyId, rate }) => {
    const bucket = left.get(apiKeyId);
    if (!bucket) throw new Error("the database did not answer for a key's quota");
    bucket.granted -= 1;
    if (bucket.granted >= 0) return null;
    // One refused event after the other may be published as tokens are added.
    return { retryAfterMs: Math.ceil((1_000 * (-bucket.granted - bucket.tokens)) / rate) };
  });
}
