import type { Knex } from "knex";

/**
 * Customers: API keys, webhooks and what is counted for them belong to one, or to the operator. Older releases go on as long as no API key
 * belongs to a customer (`requireFeature`): they write nullable columns only, and find the webhooks of the operator by the indexes that they
 * know.
 */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(CUSTOMERS);
  await knex.raw(WEBHOOKS);
  await knex.raw(OTHERS);
}

const CUSTOMERS = `
  create table customers (
    id text primary key,
    display_name text,
    metadata jsonb not null default '{}',
    webhook_quota int,
    events_per_second int,
    pending_quota int,
    created timestamptz not null default now(),
    paused timestamptz,
    erasure_started timestamptz,
    erasure_finished timestamptz,
    erasure_actor jsonb,
    erasure_look xid8,
    erasure_looked timestamptz,
    erased_webhooks bigint not null default 0,
    erased_keys bigint not null default 0,
    erased_payloads bigint not null default 0,
    erased_deliveries bigint not null default 0
  );
  comment on table customers is 'Customers with API keys or settings. Those that only events name have no row.';
  comment on column customers.id is 'The user_id of its events.';
  comment on column customers.metadata is 'Texts by name, for the operator only.';
  comment on column customers.erased_webhooks is 'What the latest erasure has removed so far.';
  comment on column customers.erasure_actor is 'Who has started the latest erasure, as entries of the audit log name them.';
  comment on column customers.erasure_look is 'The transaction at whose start, erasure_looked, an erasure first found nothing: those that were open then are waited for.';
  create index customers_erasing on customers (id) where erasure_started is not null and erasure_finished is null;
  -- Texts that begin with another, whatever the collation of the database.
  create index customers_prefix on customers (id collate "C");
  create index customers_named on customers (id) where display_name is not null;
  create index customers_pending_quota on customers (id) where pending_quota is not null;

  alter table api_keys add column customer text;
  comment on column api_keys.customer is 'The customer that it belongs to; null for keys of the operator.';
  create index api_keys_customer on api_keys (customer) where customer is not null;

  create table customer_event_quotas (
    customer text primary key,
    tokens float8 not null,
    at timestamptz not null,
    rate int not null,
    requested int not null,
    granted int not null
  ) with (fillfactor = 50);
  comment on table customer_event_quotas is 'As event_quotas, over all keys of a customer.';
`;

const WEBHOOKS = `
  alter table webhooks add column customer text, add column customer_paused boolean not null default false;
  comment on column webhooks.customer is 'The customer of its first API key, for ever; null for webhooks of the operator.';
  comment on column webhooks.customer_paused is 'Whether paused was set because its customer was paused.';
  -- In each instance of the contract a webhook is unique: in the operator's, and in each customer's.
  drop index webhooks_live;
  -- Finds the recipients of an event in each, too: older releases read webhooks_process.
  create unique index webhooks_live on webhooks (customer, process, target_url) nulls not distinct where deleted is null;
  -- Steps of the fan-out and lists of the operator's webhooks, and of each customer's, without reading those of others.
  create index webhooks_operator on webhooks (process, id) where customer is null;
  create index webhooks_operator_live on webhooks (id) where customer is null and deleted is null;
  create index webhooks_customer on webhooks (customer, process, id) where customer is not null;

  -- A plan is made before the customer is known: none is taken for a large part of the table.
  alter table webhooks alter column customer set (n_distinct = 100000);

  comment on table processes is 'Per event type: a revision that every create, pause, resume and delete of a webhook of the operator raises, and its live webhooks.';
  alter table processes add column customers_live int not null default 0;
  comment on column processes.customers_live is 'The live webhooks of all customers.';
  create table customer_processes (
    customer text not null,
    process int not null,
    revision bigint not null,
    live int not null,
    changed xid8 not null default pg_current_xact_id(),
    primary key (customer, process)
  ) with (fillfactor = 70);
  comment on table customer_processes is 'As processes, for the webhooks of each customer.';
  comment on column customer_processes.changed is 'The transaction that raised the revision last, except for a new webhook: workers read only what has changed.';
  create index customer_processes_changed on customer_processes (changed);

  alter table fan_out add column customer text, add column customer_revision bigint;
  comment on column fan_out.customer is 'The customer whose webhooks are recipients, too; null if it has none of the event type.';
  comment on column fan_out.customer_revision is 'As revision, for the webhooks of the customer.';
`;

const OTHERS = `
  alter table audit_log add column customer text, add column actor_customer text;
  comment on column audit_log.customer is 'The customer whose keys see the entry.';
  create index audit_log_customer on audit_log (customer, id) where customer is not null;
  -- For searches by a part of a name: few webhooks have one.
  create index webhooks_named on webhooks (name, id) where name is not null;
  alter table replays add column customer text;
  create index replays_customer on replays (customer, id) where customer is not null;
`;

/** Migrations only go forward: a rollback of data-bearing tables is a restore from backup. */
export async function down(): Promise<void> {
  throw new Error("migrations only go forward; restore a backup instead");
}
