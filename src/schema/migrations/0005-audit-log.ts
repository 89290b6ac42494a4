import type { Knex } from "knex";

/**
 * The audit log. A trigger refuses every change of an entry, also by the role of the service. It lets retention delete
 * entries: in a transaction that names the retention, entries older than that and than seven days.
 */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    create table audit_log (
      id uuid primary key default new_event_id(),
      action text not null,
      api_key_id uuid,
      api_key_name text,
      actor_app_id uuid,
      session_id text,
      address inet,
      target_id text,
      target_name text,
      app_id uuid,
      process int,
      before jsonb not null default '{}',
      after jsonb not null default '{}',
      written timestamptz not null default clock_timestamp()
    );
    create index audit_log_action_idx on audit_log (action, id);
    create index audit_log_api_key_id_idx on audit_log (api_key_id, id);
    create index audit_log_target_id_idx on audit_log (target_id, id);
    create index audit_log_app_id_idx on audit_log (app_id, id);
    comment on table audit_log is 'Who changed what, when and from where. Append-only, without secrets.';
    comment on column audit_log.api_key_id is 'The key that made the change; null for the operator.';
    comment on column audit_log.actor_app_id is 'The installed app of that key.';
    comment on column audit_log.session_id is 'The session of the settings page: the first 16 hexadecimal digits of sessions.token_sha256.';
    comment on column audit_log.target_id is 'The webhook, delivery, API key or installed app that was changed.';
    comment on column audit_log.app_id is 'The installed app of what was changed; its keys see the entry.';
    comment on column audit_log.process is 'The event type of the webhook that was changed.';

    create function keep_audit_log() returns trigger language plpgsql as $$
    declare
      retention int := nullif(current_setting('webhook_service.audit_retention_days', true), '')::int;
    begin
      if tg_op = 'DELETE' then
        -- Without a named retention, nothing may be deleted.
        if old.written < now() - make_interval(days => greatest(7, retention)) and retention is not null then
          return old;
        end if;
      end if;
      raise exception 'audit_log is append-only: % is refused', tg_op using
        errcode = 'insufficient_privilege',
        hint = 'Entries are deleted by retention (AUDIT_RETENTION_DAYS) only.';
    end $$;
    create trigger audit_log_kept before update or delete on audit_log
      for each row execute function keep_audit_log();
    create trigger audit_log_not_truncated before truncate on audit_log
      for each statement execute function keep_audit_log();
    -- Also where session_replication_role turns other triggers off.
    alter table audit_log enable always trigger audit_log_kept;
    alter table audit_log enable always trigger audit_log_not_truncated;
  `);
}

/** Migrations only go forward: a rollback of data-bearing tables is a restore from backup. */
export async function down(): Promise<void> {
  throw new Error("migrations only go forward; restore a backup instead");
}
