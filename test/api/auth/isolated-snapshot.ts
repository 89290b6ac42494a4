import { type Db, rows } from "../../../src/db/database.ts";
import type { WorldKey, WorldWebhook } from "./isolated-world.ts";

/** Every table that a call may change, those that others refer to first. */
const TABLES = [
  "installed_apps",
  "api_keys",
  "api_key_old_secrets",
  "sessions",
  "processes",
  "endpoints",
  "webhooks",
  "webhook_old_urls",
  "events",
  "search_terms",
  "idempotency_keys",
  "fan_out",
  "workers",
  "runs",
  "run_groups",
  "queue",
  "retries",
  "deliveries",
  "attempts",
  "rollup_deltas",
  "rollup_minutes",
  "rollup_hours",
  "webhook_health",
  "replays",
  "replay_webhooks",
  // With the texts that earlier calls searched for, which later ones may see.
  "audit_log",
];

/** Keeps a copy of the database as it is now. */
export async function keep(db: Db): Promise<void> {
  await db.raw("create schema kept");
  for (const table of TABLES) await db.raw(`create table kept.${table} as table public.${table}`);
}

/** In one round trip, and so in one transaction. */
const RESTORE = [
  "alter table public.audit_log disable trigger audit_log_kept",
  ...TABLES.toReversed().map((table) => `delete from public.${table}`),
  ...TABLES.map((table) => `insert into public.${table} overriding system value select * from kept.${table}`),
  "alter table public.audit_log enable always trigger audit_log_kept",
].join(";");

/** Makes the database as it was when the copy was made. */
export async function restore(db: Db): Promise<void> {
  await db.raw(RESTORE);
}

/** The rows of webhooks and keys, with all that hangs on them, as text: what is the same has not changed. */
export async function rowsOf(
  db: Db,
  { webhooks, keys }: { webhooks: readonly WorldWebhook[]; keys: readonly WorldKey[] },
): Promise<string[]> {
  const found = await rows<{ row: string }>(
    db,
    `select row(w.*)::text as row from webhooks w where id = any(:webhooks::bigint[])
      union all select row(e.*)::text from endpoints e
        where id in (select endpoint_id from webhooks where id = any(:webhooks::bigint[]))
      union all select row(q.*)::text from queue q where id = any(:deliveries::uuid[])
      union all select row(r.*)::text from retries r where id = any(:deliveries::uuid[])
      union all select row(d.*)::text from deliveries d where id = any(:deliveries::uuid[])
      union all select row(a.*)::text from attempts a where delivery_id = any(:deliveries::uuid[])
      union all select row(e.*)::text from events e where id = any(:events::uuid[])
      union all select row(k.*)::text from api_keys k where id = any(:keys::uuid[])
      union all select row(r.*)::text from replays r where id = any(:replays::uuid[])
      union all select row(p.*)::text from replay_webhooks p where replay_id = any(:replays::uuid[])
      union all select row(s.*)::text from sessions s where api_key_id = any(:keys::uuid[])
      union all select row(a.*)::text from installed_apps a where id = any(:apps::uuid[])
      order by 1`,
    {
      webhooks: webhooks.map(({ id }) => String(id)),
      deliveries: webhooks.flatMap(({ deliveryIds }) => deliveryIds),
      events: webhooks.flatMap(({ eventIds }) => eventIds),
      keys: keys.map(({ id }) => id),
      replays: webhooks.flatMap(({ replayIds }) => replayIds),
      apps: keys.flatMap(({ appId }) => (appId === null ? [] : [appId])),
    },
  );
  return found.map(({ row }) => row);
}

/** How many deliveries webhooks have. */
export async function deliveriesOf(db: Db, webhooks: readonly WorldWebhook[]): Promise<number> {
  const [row] = await rows<{ n: number }>(
    db,
    "select count(*)::int as n from all_deliveries where webhook_id = any(:ids::bigint[])",
    { ids: webhooks.map(({ id }) => String(id)) },
  );
  return row?.n ?? 0;
}

/** The keys that are not as they were kept: made since, or with another secret. */
export function changedKeys(
  db: Db,
): Promise<{ id: string; appId: string | null; permissions: number[]; processes: number[] }[]> {
  return rows(
    db,
    `select k.id, k.installed_app_id as "appId", k.permissions, k.allowed_processes as processes
      from api_keys k left join kept.api_keys before on before.id = k.id
      where before.secret_sha256 is distinct from k.secret_sha256 or before.revoked is distinct from k.revoked`,
  );
}
