import type { Knex } from "knex";

/**
 * Search for deliveries, and the headers of failed attempts. Only adds, so that version 0.2.0 works beside it: what that
 * version publishes is not found by values of its payload, and attempts that it records have no headers.
 *
 * Most of what people search for is in an index already: ids, user ids and idempotency keys. `search_terms` holds the
 * values of payloads that the proto marks `searchable`, per event and not per delivery. It is partitioned like the log,
 * so that random inserts touch the index of one day only, and retention drops it by partition.
 */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    create table search_terms (
      term bigint not null,
      event_id uuid not null
    ) partition by range (event_id);
    comment on table search_terms is 'Searchable values of events'' payloads, as long as the payload is stored.';
    comment on column search_terms.term is 'The first eight bytes of the SHA-256 of the value in lower case.';
    create index search_terms_term on search_terms (term, event_id);
    -- Rows are in the order of their ids. Erasing payloads finds them with this index, which costs almost nothing to keep.
    create index search_terms_event on search_terms using brin (event_id) with (pages_per_range = 16, autosummarize = on);

    alter table attempts add column signature text, add column response_headers text;
    alter table deliveries add column signature text, add column response_headers text;
    comment on column attempts.signature is 'The header webhook-signature that was sent; null if nothing was sent.';
    comment on column attempts.response_headers is 'The first headers of the response: JSON, an array of names and values in turn.';
    comment on column deliveries.signature is 'Of a failed attempt; null after a successful one, whose signature can be recomputed.';
    comment on column deliveries.response_headers is 'Of a failed attempt.';

    create index webhooks_host on webhooks ((split_part(target_url, '/', 3)) collate "C");
  `);
}

/** Migrations only go forward: a rollback of data-bearing tables is a restore from backup. */
export async function down(): Promise<void> {
  throw new Error("migrations only go forward; restore a backup instead");
}
