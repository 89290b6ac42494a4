import { type Db, rows } from "../../../src/db/database.ts";
import type { WorldKey, WorldWebhook } from "./isolated-world.ts";

/** Every table that a call may change. */
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

/** Notes each table that a statement writes to. */
const NOTE_CHANGES = `
  create table kept.changed_tables (name name not null);
  create function kept.note_change() returns trigger language plpgsql as $$
  begin
    insert into kept.changed_tables values (tg_table_name);
    return null;
  end $$`;

/** Without triggers, so that neither a reference nor a note is made of it; that of the audit log fires always. */
const RESTORE = `
  create function kept.restore() returns void language plpgsql as $$
  declare
    changed name[] := array(select distinct name from kept.changed_tables);
    one name;
  begin
    perform set_config('session_replication_role', 'replica', true);
    if 'audit_log' = any(changed) then
      alter table public.audit_log disable trigger audit_log_kept;
    end if;
    foreach one in array changed loop
      execute format('delete from public.%I', one);
      execute format('insert into public.%I overriding system value select * from kept.%I', one, one);
    end loop;
    if 'audit_log' = any(changed) then
      alter table public.audit_log enable always trigger audit_log_kept;
    end if;
    delete from kept.changed_tables;
  end $$`;

/** Keeps a copy of the database as it is now. */
export async function keep(db: Db): Promise<void> {
  const copies = TABLES.map(
    (table) => `create table kept.${table} as table public.${table};
      create trigger kept_changes after insert or update or delete on public.${table}
        for each statement execute function kept.note_change()`,
  );
  await db.raw(["create schema kept", NOTE_CHANGES, RESTORE, ...copies].join(";"));
}

/** Makes the database as it was when the copy was made: what calls have written to since. */
export async function restore(db: Db): Promise<void> {
  await db.raw("select kept.restore()");
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
    { prepare: "rows_of" },
  );
  return found.map(({ row }) => row);
}

/** How many deliveries webhooks have. */
export async function deliveriesOf(db: Db, webhooks: readonly WorldWebhook[]): Promise<number> {
  const [row] = await rows<{ n: number }>(
    db,
    "select count(*)::int as n from all_deliveries where webhook_id = any(:ids::bigint[])",
    { ids: webhooks.map(({ id }) => String(id)) },
    { prepare: "deliveries_of" },
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
