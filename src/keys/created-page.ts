import type { Condition } from "../calls/index.ts";

/** A page of a list by time of creation and id: at most `limit` rows after a position; null for the first rows. */
export interface CreatedPage {
  after: { createdUs: bigint; id: string } | null;
  limit: number;
}

/** The time of creation in microseconds since 1970: a Date has milliseconds only. */
export const CREATED_US = `(extract(epoch from created) * 1000000)::bigint as "createdUs"`;

/** The end of a query for a page: condition, order and limit. */
export function pageByCreated({ after, limit }: CreatedPage): Condition {
  const position = "('epoch'::timestamptz + :afterUs::bigint * interval '1 microsecond', :afterId::uuid)";
  return {
    sql: `${after === null ? "true" : `(created, id) > ${position}`} order by created, id limit :limit::int`,
    bindings: { limit, ...(after === null ? {} : { afterUs: String(after.createdUs), afterId: after.id }) },
  };
}
