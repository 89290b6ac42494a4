import { plainArray } from "../array-literal.ts";
import { type Db, rows } from "../database.ts";
import {
  SECRET_COLUMNS,
  type SealedSecret,
  type SecretsRow,
  sealedSecretsOf,
} from "../webhooks/webhook-secrets.ts";

/** Where and how a webhook's deliveries go, as of the claim. */
export interface ClaimedWebhook {
  id: bigint;
  /** Number of the WebhookProcess. */
  process: number;
  targetUrl: string;
  /** Newest first; those that have expired by the time of an attempt sign it no more. */
  secrets: readonly SealedSecret[];
  /** Set when the webhook was registered by an installed app. */
  installedAppId: string | null;
}

/** A webhook's row as it was read. Each change of the row gives it another version. */
interface KnownWebhook {
  version: string;
  webhook: ClaimedWebhook;
}

/** Webhooks kept, at most; those read first go first. */
const MOST_KNOWN = 10_000;
const knownOf = new WeakMap<Db, Map<bigint, KnownWebhook>>();

/**
 * The webhooks of claimed deliveries, as they are now: one object each, the same as at the last claim unless its row
 * has changed since. Every claim asks for a hundred of them, and few change, so the rest are not sent again.
 *
 * Rows of webhooks are never deleted.
 */
export async function loadClaimedWebhooks(
  db: Db,
  ids: ReadonlySet<bigint>,
): Promise<Map<bigint, ClaimedWebhook>> {
  if (ids.size === 0) return new Map();
  const known = knownWebhooks(db);
  const asked = [...ids];
  const changed = await rows<Omit<ClaimedWebhook, "secrets"> & SecretsRow & { version: string }>(
    db,
    // A row's xmin is the transaction that wrote it.
    `select w.id, w.xmin::text as version, process, target_url as "targetUrl", ${SECRET_COLUMNS},
        installed_app_id as "installedAppId"
      from unnest(:ids::bigint[], :versions::text[]) k(id, version) join webhooks w on w.id = k.id
      where w.xmin::text is distinct from k.version`,
    { ids: plainArray(asked), versions: plainArray(asked.map((id) => known.get(id)?.version ?? null)) },
    { prepare: "load_webhooks" },
  );
  const found = new Map<bigint, ClaimedWebhook>();
  for (const id of asked) {
    const webhook = known.get(id)?.webhook;
    if (webhook) found.set(id, webhook);
  }
  for (const row of changed) {
    const { id, process, targetUrl, installedAppId, version } = row;
    const webhook = { id, process, targetUrl, installedAppId, secrets: sealedSecretsOf(id, row) };
    found.set(id, webhook);
    known.delete(id);
    known.set(id, { version, webhook });
  }
  for (const id of known.keys()) {
    if (known.size <= MOST_KNOWN) break;
    known.delete(id);
  }
  return found;
}

function knownWebhooks(db: Db): Map<bigint, KnownWebhook> {
  let known = knownOf.get(db);
  if (!known) {
    known = new Map();
    knownOf.set(db, known);
  }
  return known;
}
