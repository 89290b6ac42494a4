import type { Db } from "../../../src/lib/pg/database.ts";
import type { ChangedRow } from "../../support/changed-rows.ts";

/** Copies of all tables, which undo changes. */
export interface KeptRows {
  /** Puts back the rows of the changed tables, without triggers, which would note it. Of all tables, without a list. */
  undo(changed?: readonly ChangedRow[]): Promise<void>;
}

/** Copies all tables into a schema of this name, which is made. */
export async function keepRows(db: Db, schema: string): Promise<KeptRows> {
  const tables: string[] = await db("pg_class")
    .whereRaw("relnamespace = 'public'::regnamespace and relkind in ('r', 'p') and not relispartition")
    .pluck("relname");
  await db.raw(`create schema if not exists ${schema}`);
  for (const table of tables) await db.raw(`create table ${schema}.${table} as table public.${table}`);
  return {
    async undo(changed) {
      const which = changed ? new Set(changed.map(({ table }) => table)) : tables;
      const statements = [...which].map((table) =>
        table === "audit_log" ? withoutGuard(backTo(schema, table)) : backTo(schema, table),
      );
      if (statements.length > 0)
        await db.raw(["set local session_replication_role = replica", ...statements].join(";"));
    },
  };
}

const backTo = (schema: string, table: string) =>
  `delete from ${table}; insert into ${table} overriding system value select * from ${schema}.${table}`;

/** A change of the audit log, whose trigger refuses deletions. */
const withoutGuard = (change: string) => `alter table audit_log disable trigger audit_log_kept;
  ${change};
  alter table audit_log enable always trigger audit_log_kept`;

/**
 * Removes everything that does not belong to a customer; null for what does not belong to the operator.
 *
 * @param keptKeyId of an API key that is kept, whosever it is
 */
export async function removeOthers(db: Db, customer: string | null, keptKeyId: string): Promise<void> {
  const ofWebhooks: string[] = await db("information_schema.columns")
    .where({ table_schema: "public", column_name: "webhook_id" })
    .whereRaw(
      "table_name in (select relname from pg_class where relkind in ('r', 'p') and not relispartition)",
    )
    .pluck("table_name");
  const isOther = `customer is distinct from ${customer === null ? "null" : `'${customer}'`}`;
  await db.raw(
    [
      "set local session_replication_role = replica",
      ...["webhooks", "replays"].map((table) => `delete from ${table} where ${isOther}`),
      `delete from api_keys where ${isOther} and id <> '${keptKeyId}'`,
      withoutGuard(`delete from audit_log where ${isOther}`),
      ...ofWebhooks.map((table) => `delete from ${table} where webhook_id not in (select id from webhooks)`),
      "delete from endpoints where id not in (select endpoint_id from webhooks where endpoint_id is not null)",
      "delete from incidents where id not in (select incident_id from incident_webhooks)",
      `delete from events where ${isOther.replace("customer", "user_id")} and id not in (
        select event_id from queue union all select event_id from retries union all select event_id from deliveries)`,
      ...["search_terms", "idempotency_keys"].map(
        (table) => `delete from ${table} where event_id not in (select id from events)`,
      ),
      ...["sessions", "api_key_old_secrets"].map(
        (table) => `delete from ${table} where api_key_id not in (select id from api_keys)`,
      ),
      `delete from customers where ${isOther.replace("customer", "id")}`,
    ].join(";"),
  );
}
