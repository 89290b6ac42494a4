import { LRUCache } from "lru-cache";
import { CLAIMED_NAMES, type ClaimedSettings } from "../contract/webhooks/settings.ts";
import { type Db, plainArray, rows } from "../lib/pg/index.ts";
import {
  SECRET_COLUMNS,
  type SealedSecret,
  type SecretsRow,
  sealedSecretsOf,
  settingColumns,
} from "../webhooks/index.ts";

/**
 * A parsed target URL: as stored, its origin, its path with the query, and its host with the port, which is the key of the connection
 * pool and of the host's limits.
 *
 * @param targetUrl as stored, so it is a valid URL
 */
export function parseTarget(targetUrl: string) {
  const { origin, pathname, search, host } = new URL(targetUrl);
  return { url: targetUrl, origin, path: pathname + search, host };
}

/** The target and attributes of a webhook at the time of a claim. */
export interface ClaimedWebhook extends Partial<ClaimedSettings> {
  id: bigint;
  /** Raised by each change that a user makes. */
  revision: bigint;
  /** The number of the WebhookProcess. */
  process: number;
  /** Parsed once, because each of its deliveries needs it. */
  target: ReturnType<typeof parseTarget>;
  /** Newest first. Secrets that have expired at the time of an attempt do not sign it. */
  secrets: readonly SealedSecret[];
  /** Set if the webhook belongs to an installed app. */
  installedAppId: string | null;
  /** The endpoint with which it shares a limit of requests in flight, if any. */
  endpointId?: string | null;
  /** Sealed custom headers and credentials, if any. */
  requestSettings?: Buffer | null;
  /** The filter of its events, if any that is not switched off. */
  filter?: string | null;
  /** Whether the response 410 Gone disables the webhook. Defaults to false. */
  disableOnGone?: boolean;
}

/** The default maximum number of cached webhooks. */
const MAX_CACHED_WEBHOOKS = 10_000;

/**
 * The webhooks of claimed deliveries, cached over the claims of a process. Every claim needs about a hundred webhooks and
 * few change, so unchanged rows are not transferred again. Rows of webhooks are never deleted.
 */
export class ClaimedWebhooks {
  /** Cached rows by id. Each change of a row changes its version. */
  readonly #known: LRUCache<bigint, { version: string; webhook: ClaimedWebhook }>;

  /** @param max the maximum number of cached webhooks */
  constructor(max = MAX_CACHED_WEBHOOKS) {
    this.#known = new LRUCache({ max });
  }

  /** The webhooks in their current state. Returns the same object as the last call unless the row has changed. */
  async load(db: Db, ids: ReadonlySet<bigint>): Promise<Map<bigint, ClaimedWebhook>> {
    if (ids.size === 0) return new Map();
    const asked = [...ids];
    // Read before the query: concurrent loads may evict them meanwhile.
    const cached = asked.map((id) => this.#known.get(id));
    const changed = await rows<
      Omit<ClaimedWebhook, "target" | "secrets"> & SecretsRow & { targetUrl: string; version: string }
    >(
      db,
      // A row's xmin is the id of the transaction that wrote it.
      `select w.id, w.xmin::text as version, w.revision, process, target_url as "targetUrl", ${SECRET_COLUMNS},
          ${settingColumns("w", CLAIMED_NAMES)},
          installed_app_id as "installedAppId", endpoint_id as "endpointId", request_settings as "requestSettings",
          case when filter_stopped is null then filter end as filter,
          exists (select from webhook_breakers b where b.webhook_id = w.id and b.disable_on_gone) as "disableOnGone"
        from unnest(:ids::bigint[], :versions::text[]) k(id, version)
          -- An index probe for each, whatever the planner takes the table's size for.
          cross join lateral (select w.xmin, w.* from webhooks w where w.id = k.id offset 0) w
        where w.xmin::text is distinct from k.version`,
      { ids: plainArray(asked), versions: plainArray(cached.map((each) => each?.version ?? null)) },
      { prepare: "load_webhooks" },
    );
    const found = new Map<bigint, ClaimedWebhook>();
    for (const each of cached) if (each) found.set(each.webhook.id, each.webhook);
    for (const { version, targetUrl, ...row } of changed) {
      const webhook = { ...row, target: parseTarget(targetUrl), secrets: sealedSecretsOf(row.id, row) };
      found.set(row.id, webhook);
      this.#known.set(row.id, { version, webhook });
    }
    return found;
  }
}
