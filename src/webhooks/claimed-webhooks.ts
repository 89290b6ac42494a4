import { LRUCache } from "lru-cache";
import { eventType } from "../contract/catalogue.ts";
import { CLAIMED_NAMES, type ClaimedSettings } from "../contract/webhooks/settings.ts";
import { refreshEventTypes } from "../event-types/index.ts";
import { type Db, plainArray, rows } from "../lib/pg/index.ts";
import { SECRET_COLUMNS, type SealedSecret, type SecretsRow, sealedSecretsOf } from "./webhook-secrets.ts";
import { settingColumns } from "./webhooks.ts";

/**
 * Parses a target URL into `url` as stored, `origin`, `path` with the query, and `host` with the port. `host` is the key of the
 * connection pool and of the host's limits.
 *
 * @param targetUrl as stored, so it is a valid URL
 */
export function parseTarget(targetUrl: string) {
  const { origin, pathname, search, host } = new URL(targetUrl);
  return { url: targetUrl, origin, path: pathname + search, host };
}

/** The target and settings of a webhook at the time of a claim. */
export interface ClaimedWebhook extends Partial<ClaimedSettings> {
  id: bigint;
  /** Raised by each change that a user makes. */
  revision: bigint;
  /** The number of its event type, a `WebhookProcess`. */
  process: number;
  /** Parsed once, because each of its deliveries needs it. */
  target: ReturnType<typeof parseTarget>;
  /** The signing secrets, newest first. A secret that has expired does not sign an attempt. */
  secrets: readonly SealedSecret[];
  /** The user_id of the customer that it belongs to; null for webhooks of the operator. */
  customer?: string | null;
  /** The installed app that the webhook belongs to; null if none. */
  installedAppId: string | null;
  /** The endpoint of the webhook, if any. All webhooks of an endpoint share one window of requests in flight. */
  endpointId?: string | null;
  /** Sealed custom headers and credentials, if any. */
  requestSettings?: Buffer | null;
  /** The filter of its events, a CEL expression; null if there is none, or if it was switched off because it is slow. */
  filter?: string | null;
  /** Whether the response 410 Gone disables the webhook. Defaults to false. */
  disableOnGone?: boolean;
}

/** The default maximum number of webhooks in a `ClaimedWebhooks` cache. */
const MAX_CACHED_WEBHOOKS = 10_000;
/** The maximum total size of cached request settings, in bytes. One webhook may have 2 MB of certificates. */
const MAX_CACHED_SETTINGS = 64 * 1_024 * 1_024;

/**
 * A cache of the webhooks of claimed deliveries, shared by all claims of a process. Every claim needs about a hundred webhooks and few
 * change, so unchanged rows are not transferred again. Rows of `webhooks` are never deleted, so every id is found.
 */
export class ClaimedWebhooks {
  /** Cached rows by id. `version` is the row's `xmin`, which each change of the row changes. */
  readonly #known: LRUCache<bigint, { version: string; webhook: ClaimedWebhook }>;

  /** @param max the maximum number of cached webhooks */
  constructor(max = MAX_CACHED_WEBHOOKS) {
    this.#known = new LRUCache({
      max,
      maxSize: MAX_CACHED_SETTINGS,
      sizeCalculation: ({ webhook }) => 1 + (webhook.requestSettings?.length ?? 0),
    });
  }

  /** Returns the current state of webhooks by id: the same object as an earlier call while the row is unchanged and cached. */
  async load(db: Db, ids: ReadonlySet<bigint>): Promise<Map<bigint, ClaimedWebhook>> {
    if (ids.size === 0) return new Map();
    const asked = [...ids];
    // Read before the query: concurrent calls may evict these entries during the query.
    const cached = asked.map((id) => this.#known.get(id));
    const changed = await rows<
      Omit<ClaimedWebhook, "target" | "secrets"> & SecretsRow & { targetUrl: string; version: string }
    >(
      db,
      // A row's xmin is the id of the transaction that wrote it.
      `select w.id, w.xmin::text as version, w.revision, process, target_url as "targetUrl", ${SECRET_COLUMNS},
          ${settingColumns("w", CLAIMED_NAMES)},
          customer, installed_app_id as "installedAppId", endpoint_id as "endpointId", request_settings as "requestSettings",
          case when filter_stopped is null then filter end as filter,
          exists (select from webhook_breakers b where b.webhook_id = w.id and b.disable_on_gone) as "disableOnGone"
        from unnest(:ids::bigint[], :versions::text[]) k(id, version)
          -- One index lookup per webhook, whatever size of the table the planner assumes.
          cross join lateral (select w.xmin, w.* from webhooks w where w.id = k.id offset 0) w
        where w.xmin::text is distinct from k.version`,
      { ids: plainArray(asked), versions: plainArray(cached.map((each) => each?.version ?? null)) },
      { prepare: "load_webhooks" },
    );
    // Requests name the event type, and another process may just have registered it.
    if (changed.some(({ process }) => !eventType(process))) await refreshEventTypes();
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
