import { type Condition, isUuid, type Scope, webhookIn } from "../calls/index.ts";
import { eventTypes } from "../contract/catalogue.ts";
import { type Bindings, column, type Db, rows } from "../lib/pg/index.ts";
import type { BreakerState } from "./breakers.ts";
import { type Health, type WebhookRow, webhookColumns } from "./webhooks.ts";

/** What holds deliveries of a webhook back; `active` for nothing. */
export type SearchedState = "active" | "paused" | Exclude<BreakerState, "closed">;

/** What webhooks to find. Undefined and empty fields do not restrict. */
export interface WebhookSearch {
  /** Words that are all found in a webhook, in lower case. */
  words: readonly string[];
  health: readonly Health[];
  states: readonly SearchedState[];
  process?: number | undefined;
  /** The id of an installed app; null for webhooks without one. */
  appId?: string | null | undefined;
  /** The id of the API key that owns them. */
  apiKeyId?: string | undefined;
  /** Whether only those of the operator are found. */
  withoutCustomer?: boolean;
}

/** The order of a search, by the value that comes before the id. */
export type SearchOrder = "newest" | "oldest" | "least healthy";

/** A webhook that was found. */
export interface FoundWebhook extends WebhookRow {
  /** In the order `least healthy`, 2 for failing, 1 for degraded and 0 for other webhooks; else 0. */
  rank: number;
}

/** The maximum number of webhooks counted. */
const MAX_COUNTED = 10_000;

/** A page of the scope's live webhooks that a search finds. */
export function searchWebhooks(
  db: Db,
  scope: Scope,
  search: WebhookSearch,
  order: SearchOrder,
  { after, limit }: { after: { rank: number; after: bigint } | null; limit: number },
): Promise<FoundWebhook[]> {
  const { sql, bindings } = conditionsOf(scope, search);
  const [beyond, direction] = order === "oldest" ? [">", "asc"] : ["<", "desc"];
  // By id alone where that is the order, so that an index of ids serves.
  const isRanked = order === "least healthy";
  const place = isRanked ? `(${RANK}, w.id) < (:rank::int, :after::bigint)` : `w.id ${beyond} :after::bigint`;
  return rows<FoundWebhook>(
    db,
    // The rows of a page are chosen first: their other columns cost several lookups each.
    `select ${webhookColumns("w")}, page.rank from (
        select w.id, ${isRanked ? RANK : "0"} as rank from ${SOURCE} where ${sql} ${after ? `and ${place}` : ""}
        order by ${isRanked ? `${RANK} desc,` : ""} w.id ${direction} limit :limit::int
      ) page join webhooks w on w.id = page.id
      order by page.rank desc, page.id ${direction}`,
    { ...bindings, limit, ...after },
  );
}

/** The number of the scope's live webhooks that a search finds, at most 10,000. */
export async function countWebhooks(db: Db, scope: Scope, search: WebhookSearch): Promise<number> {
  const { sql, bindings } = conditionsOf(scope, search);
  const [found = 0] = await column<number>(
    db,
    `select count(*)::int as n from (select from ${SOURCE} where ${sql} limit ${MAX_COUNTED}) w`,
    bindings,
  );
  return found;
}

/** The event types of endpoints with more than one, by id; of webhooks in the scope. */
export async function typesOfEndpoints(
  db: Db,
  scope: Scope,
  ids: readonly string[],
): Promise<{ id: string; processes: number[] }[]> {
  if (ids.length === 0) return [];
  const inScope = webhookIn(scope, "w");
  return rows(
    db,
    `select w.endpoint_id as id, array_agg(w.process order by w.id) as processes from webhooks w
      where w.endpoint_id = any(:ids::uuid[]) and w.deleted is null and ${inScope.sql}
      group by w.endpoint_id having count(*) > 1`,
    { ...inScope.bindings, ids: [...new Set(ids)] },
  );
}

const SOURCE = `webhooks w
  left join webhook_health h on h.webhook_id = w.id and h.health <> 'healthy'
  left join webhook_breakers b on b.webhook_id = w.id and b.state <> 'closed' and w.paused is not null`;

const RANK = "(case h.health when 'failing' then 2 when 'degraded' then 1 else 0 end)";

const STATE = "coalesce(b.state, case when w.paused is null then 'active' else 'paused' end)";

/** The id of a webhook, as it is written. */
const ID = /^[1-9]\d{0,17}$/;

function conditionsOf(
  scope: Scope,
  { words, health, states, process, appId, apiKeyId, withoutCustomer }: WebhookSearch,
): Condition {
  const inScope = webhookIn(scope, "w");
  const conditions = ["w.deleted is null", inScope.sql];
  const bindings: Bindings = { ...inScope.bindings };
  const restrict = (condition: string, values: Bindings = {}) => {
    conditions.push(condition);
    Object.assign(bindings, values);
  };
  if (health.length > 0) restrict("coalesce(h.health, 'healthy') = any(:health::text[])", { health });
  if (states.length > 0) restrict(`${STATE} = any(:states::text[])`, { states });
  if (process !== undefined) restrict("w.process = :process::int", { process });
  if (appId === null) restrict("w.installed_app_id is null");
  else if (appId !== undefined) restrict("w.installed_app_id = :appId::uuid", { appId });
  if (apiKeyId !== undefined) restrict("w.api_key_id = :apiKeyId::uuid", { apiKeyId });
  if (withoutCustomer) restrict("w.customer is null");
  for (const [n, word] of words.entries()) {
    const types = eventTypes()
      .filter(({ name, alias = "" }) => `${name} ${alias}`.toLowerCase().includes(word))
      .map(({ number }) => number);
    // Each of these conditions is evaluated for every webhook, so only those that the word can meet are added.
    const meanings = [
      `lower(coalesce(w.name, '') || ' ' || w.url) like :part${n}`,
      `lower(w.customer) = :word${n}`,
      `w.installed_app_id in (select a.id from installed_apps a where lower(a.name) like :part${n})`,
      types.length > 0 && `w.process = any(:types${n}::int[])`,
      ID.test(word) && `w.id = :word${n}::text::bigint`,
      isUuid(word) && `w.endpoint_id = :word${n}::text::uuid`,
    ];
    restrict(`(${meanings.filter(Boolean).join(" or ")})`, {
      [`part${n}`]: `%${word.replaceAll(/[\\%_]/g, "\\$&")}%`,
      [`word${n}`]: word,
      [`types${n}`]: types,
    });
  }
  return { sql: conditions.join(" and "), bindings };
}
