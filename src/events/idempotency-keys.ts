import { type Db, rows } from "../lib/pg/index.ts";
import { NIL_ID, type Partition } from "../schema/index.ts";

/** The maximum number of events that one statement reads, so that no other statement waits long. */
const KEYS_PER_STATEMENT = 1_000;

/**
 * Deletes the idempotency keys of a partition's events, in the order of their ids. Reads each event once, however many
 * keys are deleted already.
 */
export async function deleteIdempotencyKeys(
  db: Db,
  { name }: Pick<Partition, "name">,
  stop?: AbortSignal,
): Promise<number> {
  let deleted = 0;
  let after: string | null = NIL_ID;
  while (after !== null && !stop?.aborted) {
    const [step]: { n: number; last: string | null }[] = await rows(
      db,
      `with old as materialized (
          select id, api_key_id, idempotency_key from ${name} where id > :after::uuid order by id limit :step::int
        ),
        gone as (
          delete from idempotency_keys where ctid = any(array(
            -- An index probe for each event: a join could read the whole table.
            select k.place from old cross join lateral (
              select ctid as place from idempotency_keys k
              where k.api_key_id = old.api_key_id and k.idempotency_key = old.idempotency_key and k.event_id = old.id
              offset 0
            ) k
          )) returning event_id
        )
        select (select count(*)::int from gone) as n, (select id from old order by id desc limit 1) as last`,
      { after, step: KEYS_PER_STATEMENT },
    );
    deleted += step?.n ?? 0;
    after = step?.last ?? null;
  }
  return deleted;
}
