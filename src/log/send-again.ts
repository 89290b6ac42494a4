import { stateNotFit } from "../calls/errors/index.ts";
import { type Scope, webhookIn } from "../calls/index.ts";
import type { DomainError } from "../contract/errors.ts";
import { column, type Db, rows } from "../lib/pg/index.ts";
import { CHANGE } from "../queue/index.ts";
import { idRangeOf } from "../schema/index.ts";
import { type DeliveryRow, FINAL_STATES, getDelivery } from "./deliveries.ts";
import type { DeliveryFilter } from "./list.ts";
import { searchDeliveries } from "./search.ts";
import type { SearchText } from "./search-text.ts";

/** The maximum number of attempts of a delivery that can be resent: attempt numbers are smallint. */
const MAX_ATTEMPTS = 30_000;
/** The maximum number of deliveries changed by one statement, so that no claim waits long. */
export const MAX_ROWS_PER_STATEMENT = 500;

/** Whether a delivery with this id exceeds the retention: it would expire immediately. */
const IS_OLD = (id: string) => `time_of_id(${id}) < now() - make_interval(days => :retentionDays::int)`;

/**
 * Starts a new round for those of the scope's deliveries that are final and not too old, and whose webhook, key and
 * payload still exist. Waits for erasures of their payloads, and keeps the payloads until the transaction ends.
 *
 * @param ids UUIDs in lower case, at least one
 * @returns the ids of the deliveries that are now pending
 */
export function startRound(
  db: Db,
  scope: Scope,
  ids: readonly string[],
  retentionDays: number,
): Promise<string[]> {
  const inScope = webhookIn(scope, "w");
  const sorted = [...ids].sort();
  const { first } = idRangeOf(sorted[0] as string);
  const { last } = idRangeOf(sorted.at(-1) as string);
  // So that other partitions are not planned for.
  const inBounds = (id: string) => `${id} between :first::uuid and :last::uuid`;
  return column<string>(
    db,
    `with wanted as materialized (
        select d.id, d.webhook_id, d.event_id from unnest(:ids::uuid[]) as wanted(id) cross join lateral (
          select * from deliveries d where d.id = wanted.id and ${inBounds("d.id")} limit 1
        ) d where d.attempts < :most::int and not ${IS_OLD("d.id")}
      ),
      allowed as materialized (
        -- Looked up delivery by delivery: joined, every webhook could be compared with every delivery.
        select d.id, d.event_id from wanted d cross join lateral (
          select from webhooks w join api_keys k on k.id = w.api_key_id
          where w.id = d.webhook_id and w.deleted is null and k.revoked is null and ${inScope.sql} offset 0
        ) w
      ),
      event as materialized (
        -- Locked before the deliveries and in the order of ids, as by erasures. Waits for an erasure in progress; a later
        -- one sees the deliveries in the queue.
        select id, payload is null as erased from events
          where id = any(array(select event_id from allowed)) and ${inBounds("id")} order by id for share
      ),
      chosen as materialized (
        select id from allowed where event_id <> all(array(select id from event where erased))
      ),
      gone as (
        delete from deliveries
          where id = any(array(select id from chosen)) and ${inBounds("id")} and attempts < :most::int
        returning *
      ),
      tried as (
        -- The attempt that ended it is one of several now.
        insert into attempts (delivery_id, number, started, duration_ms, status, error, response_start, signature,
          response_headers, timing)
        select id, attempts, started, duration_ms, status, error, response_start, signature, response_headers, timing
        from gone where started is not null
      ),
      taken_back as (
        insert into rollup_deltas (minute, webhook_ids, changes, durations_ms)
        select date_trunc('minute', finished), array_agg(webhook_id),
          array_agg(case outcome when 'delivered' then ${-CHANGE.delivered} when 'failed' then ${-CHANGE.failed}
            when 'filtered' then ${-CHANGE.filtered} else ${-CHANGE.cancelled} end::smallint),
          array_agg(-1)
        from gone group by 1
      ),
      held_back as (
        -- Otherwise a paused webhook would get its test event again.
        update webhooks w set test_delivery = null, probe_attempts = null
        where w.id = any(array(select webhook_id from gone)) and w.test_delivery = any(array(select id from gone))
      )
      insert into queue (id, event_id, webhook_id, attempts, queued)
      select id, event_id, webhook_id, attempts, now() from gone
      returning id`,
    { ids: ids as string[], first, last, most: MAX_ATTEMPTS, retentionDays, ...inScope.bindings },
  );
}

/**
 * Starts a new round for a final delivery, whose id must be a UUID: up to four more attempts, with continued numbers.
 *
 * @returns the delivery in its new state; null if the scope has none
 * @throws DomainError FAILED_PRECONDITION if it is not final, or its webhook or key no longer exists
 */
export async function sendAgain(
  db: Db,
  scope: Scope,
  id: string,
  retentionDays: number,
): Promise<DeliveryRow | null> {
  const again = await startRound(db, scope, [id], retentionDays);
  const found = await getDelivery(db, scope, id);
  if (!found) return null;
  if (again.length === 0) throw await notNow(db, found.delivery, retentionDays);
  return found.delivery;
}

async function notNow(
  db: Db,
  { id, eventId, webhookId, state, attempts }: DeliveryRow,
  retentionDays: number,
): Promise<DomainError> {
  if (!FINAL_STATES.includes(state)) {
    return stateNotFit(
      `delivery ${id} is ${state}; it can be sent again once it is ${FINAL_STATES.join(", ")}`,
    );
  }
  if (attempts >= MAX_ATTEMPTS) {
    return stateNotFit(
      `delivery ${id} has had ${attempts} attempts; at most ${MAX_ATTEMPTS} are allowed; publish the event again`,
    );
  }
  const [found] = await rows<{ old: boolean; erased: boolean }>(
    db,
    `select ${IS_OLD(":id::uuid")} as old,
        exists (select from events where id = :eventId::uuid and payload is null) as erased`,
    { id, eventId, retentionDays },
  );
  if (found?.old) {
    return stateNotFit(
      `delivery ${id} is older than ${retentionDays} days (RETENTION_DAYS) and would expire immediately; publish the event again`,
    );
  }
  if (found?.erased)
    return stateNotFit(`the payload of delivery ${id} was erased; publish the event again with its data`);
  return stateNotFit(
    `webhook ${webhookId} of delivery ${id}, or its API key, no longer exists; register the URL again and publish the event again`,
  );
}

/** The result of one call of `sendManyAgain`. */
export interface SentAgain {
  sent: number;
  /** The number of deliveries not resent: their webhook, key or payload no longer exists, or they are too old. */
  skipped: number;
  /** The id before which to continue; null if nothing is left. */
  next: string | null;
}

/**
 * Starts a new round for the scope's final deliveries that match a filter, newest first, in small steps.
 *
 * @param options.limit the maximum number of deliveries examined
 * @param options.search only deliveries that the text identifies
 * @param options.step runs each step, by default on `db`. Returns what the step returns
 */
export async function sendManyAgain(
  db: Db,
  scope: Scope,
  filter: DeliveryFilter,
  {
    limit,
    retentionDays,
    search,
    step: runStep = (startStep) => startStep(db),
  }: {
    limit: number;
    retentionDays: number;
    search?: SearchText | undefined;
    step?: (startStep: (trx: Db) => Promise<string[]>) => Promise<string[]>;
  },
): Promise<SentAgain> {
  const done: SentAgain = { sent: 0, skipped: 0, next: filter.before ?? null };
  for (let left = limit; left > 0; ) {
    const step = Math.min(MAX_ROWS_PER_STATEMENT, left);
    const rest = { ...filter, before: done.next ?? undefined };
    const page = await searchDeliveries(db, scope, rest, step, search);
    const ids = page.deliveries.map(({ id }) => id);
    const again = ids.length === 0 ? [] : await runStep((trx) => startRound(trx, scope, ids, retentionDays));
    done.sent += again.length;
    done.skipped += ids.length - again.length;
    done.next = ids.length === step ? (ids.at(-1) as string) : page.searchedTo;
    if (done.next === null || ids.length < step) return done;
    left -= step;
  }
  return done;
}
