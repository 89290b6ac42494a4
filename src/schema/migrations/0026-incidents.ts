import type { Knex } from "knex";

/**
 * Incidents: what fails, grouped by cause and host; and what became of replayed deliveries. Only new tables: older releases beside this one
 * change no incident, and what they replay is not counted.
 */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    create table incidents (
      id uuid primary key default new_event_id(),
      cause text not null,
      subject text not null,
      opened timestamptz not null,
      closed timestamptz,
      warning boolean not null default false,
      webhooks int not null default 0,
      failing int not null default 0
    ) with (fillfactor = 70);
    comment on table incidents is 'What has failed: one cause at one subject, with the webhooks that it concerns.';
    comment on column incidents.subject is 'What the cause lies in: a host, with its port if it is not 443, or another part, such as the outbound proxy.';
    comment on column incidents.webhooks is 'Rows of incident_webhooks,';
    comment on column incidents.failing is 'and those of them that have not ended.';
    create unique index incidents_open on incidents (cause, subject) where closed is null;
    create index incidents_order on incidents (coalesce(closed, 'infinity'::timestamptz), id);
    create index incidents_subject on incidents (subject, id);

    create table incident_webhooks (
      incident_id uuid not null,
      webhook_id bigint not null,
      customer text,
      shown_id uuid not null,
      since timestamptz not null,
      ended timestamptz,
      warning boolean not null default false,
      error text not null,
      differs timestamptz,
      first_delivery uuid not null,
      last_delivery uuid,
      failed int not null default 0,
      recovered int not null default 0,
      check_at timestamptz,
      primary key (shown_id, webhook_id)
    ) with (fillfactor = 70);
    comment on table incident_webhooks is 'The webhooks that an incident concerns or has concerned. A webhook is in at most one that has not ended for it, beside warnings.';
    comment on column incident_webhooks.customer is 'The customer of the webhook.';
    comment on column incident_webhooks.shown_id is 'The id that keys of its customer see, of an incident of this customer only; of webhooks of the operator, incident_id.';
    comment on column incident_webhooks.error is 'The error with which it joined the incident.';
    comment on column incident_webhooks.differs is 'Since when its errors have had another cause; null if they have not.';
    comment on column incident_webhooks.first_delivery is 'Its oldest delivery that was open when it joined.';
    comment on column incident_webhooks.last_delivery is 'The first id after the incident ended for it.';
    comment on column incident_webhooks.failed is 'Deliveries between these ids that ended as failed since it joined,';
    comment on column incident_webhooks.recovered is 'and those that were delivered, both as counted last.';
    comment on column incident_webhooks.check_at is 'When to count them again; null for not any more.';
    create index incident_webhooks_incident on incident_webhooks (incident_id, webhook_id);
    create index incident_webhooks_customer on incident_webhooks (incident_id, customer, ended) where customer is not null;
    create index incident_webhooks_webhook on incident_webhooks (webhook_id, incident_id);
    create unique index incident_webhooks_failing on incident_webhooks (webhook_id) where ended is null and not warning;
    create index incident_webhooks_warning on incident_webhooks (webhook_id) where ended is null and warning;
    create index incident_webhooks_check on incident_webhooks (check_at) where check_at is not null;

    create table host_certificates (
      host text not null,
      of_customers boolean not null,
      not_after timestamptz not null,
      seen timestamptz not null default now(),
      primary key (host, of_customers)
    );
    comment on table host_certificates is 'The end of the certificate that each host has shown last.';
    comment on column host_certificates.host is 'With its port if it is not 443.';
    comment on column host_certificates.of_customers is 'Whether it was seen by requests of customers, which reach other addresses than those of the operator.';
    comment on column host_certificates.seen is 'Accurate to about a day.';
    create index host_certificates_end on host_certificates (not_after);

    create table replay_steps (
      id bigint generated always as identity primary key,
      replay_id uuid not null references replays on delete cascade,
      open uuid[] not null,
      queued timestamptz not null default now(),
      delivered int not null default 0,
      failed int not null default 0,
      check_at timestamptz
    ) with (fillfactor = 70);
    comment on table replay_steps is 'What became of the deliveries that each step of a replay has queued.';
    comment on column replay_steps.open is 'Those that had not ended when they were looked up last.';
    comment on column replay_steps.check_at is 'When to look them up again; null once all have ended.';
    create index replay_steps_replay on replay_steps (replay_id);
    create index replay_steps_check on replay_steps (check_at) where check_at is not null;
  `);
}

/** Migrations only go forward: a rollback of data-bearing tables is a restore from backup. */
export async function down(): Promise<void> {
  throw new Error("migrations only go forward; restore a backup instead");
}
