import { DomainError } from "../../domain-error.ts";
import type { Db } from "../database.ts";
import { rows } from "../database.ts";
import { CHANGE } from "../queue/deltas.ts";
import { type Scope, webhookIn } from "../scope.ts";
import { type DeliveryRow, FINAL_STATES, getDelivery } from "./deliveries.ts";
import { type DeliveryFilter, listDeliveries } from "./list.ts";

/** A delivery that has had as many attempts as this is not sent again: their numbers are smallint. */
const MAX_ATTEMPTS = 30_000;
/** Deliveries changed by one statement: few enough that no claim waits for it. */
const STEP = 500;

/**
 * Starts another round for those of the scope's deliveries that are final and whose webhook and key are there.
 *
 * @returns the ids of those that are pending now
 */
async function startRound(db: Db, scope: Scope, ids: readonly string[]): Promise<string[]> {
  const inScope = webhookIn(scope, "w");
  const again = await rows<{ id: string }>(
    db,
    `with chosen as materialized (
        select d.id from unnest(:ids::uuid[]) as wanted(id) cross join lateral (
          select d.id, d.webhook_id, d.attempts from deliveries d where d.id = wanted.id limit 1
        ) d join webhooks w on w.id = d.webhook_id join api_keys k on k.id = w.api_key_id
        where d.attempts < :most::int and w.deleted is null and k.revoked is null and ${inScope.sql}
      ),
      gone as (
        delete from deliveries where id = any(array(select id from chosen)) and attempts < :most::int
        returning *
      ),
      tried as (
        -- The attempt that ended it is one of several now.
        insert into attempts (delivery_id, number, started, duration_ms, status, error, response_start)
        select id, attempts, started, duration_ms, status, error, response_start from gone where started is not null
      ),
      taken_back as (
        insert into rollup_deltas (minute, webhook_ids, changes, durations_ms)
        select date_trunc('minute', finished), array_agg(webhook_id),
          array_agg(case outcome when 'delivered' then ${-CHANGE.delivered} when 'failed' then ${-CHANGE.failed}
            else ${-CHANGE.cancelled} end::smallint),
          array_agg(-1)
        from gone group by 1
      )
      insert into queue (id, event_id, webhook_id, attempts) select id, event_id, webhook_id, attempts from gone
      returning id`,
    { ids: ids as string[], most: MAX_ATTEMPTS, ...inScope.bindings },
  );
  return again.map(({ id }) => id);
}

/**
 * Starts another round for a final delivery, whose id must be a UUID: up to four more attempts, numbered on.
 *
 * @returns the delivery as it is now, or null when the scope has none
 * @throws DomainError FAILED_PRECONDITION while it is not final, and when its webhook or key is gone
 */
export async function sendAgain(db: Db, scope: Scope, id: string): Promise<DeliveryRow | null> {
  const again = await startRound(db, scope, [id]);
  const found = await getDelivery(db, scope, id);
  if (!found) return null;
  if (again.length === 0) throw notNow(found.delivery);
  return found.delivery;
}

function notNow({ id, webhookId, state, attempts }: DeliveryRow): DomainError {
  const refuse = (message: string) =>
    new DomainError("FAILED_PRECONDITION", message, { reason: "STATE_NOT_FIT" });
  if (!FINAL_STATES.includes(state)) {
    return refuse(`delivery ${id} is ${state}; it can be sent again once it is ${FINAL_STATES.join(", ")}`);
  }
  if (attempts >= MAX_ATTEMPTS) {
    return refuse(
      `delivery ${id} has had ${attempts} attempts, as many as one may have; publish the event anew`,
    );
  }
  return refuse(
    `webhook ${webhookId} of delivery ${id}, or its key, is gone; register the address again and publish the event anew`,
  );
}

/** What one call of `sendManyAgain` did. */
export interface SentAgain {
  sent: number;
  /** Left as they are, since their webhook or key is gone. */
  skipped: number;
  /** The id to go on before; null when nothing is left. */
  next: string | null;
}

/**
 * Starts another round for the scope's final deliveries that a filter finds, newest first, in small steps.
 *
 * @param limit how many deliveries are looked at, at most
 */
export async function sendManyAgain(
  db: Db,
  scope: Scope,
  filter: DeliveryFilter,
  limit: number,
): Promise<SentAgain> {
  const done: SentAgain = { sent: 0, skipped: 0, next: filter.before ?? null };
  for (let left = limit; left > 0; ) {
    const step = Math.min(STEP, left);
    const page = await listDeliveries(db, scope, { ...filter, before: done.next ?? undefined }, step);
    const ids = page.deliveries.map(({ id }) => id);
    const again = await startRound(db, scope, ids);
    done.sent += again.length;
    done.skipped += ids.length - again.length;
    done.next = ids.length === step ? (ids.at(-1) as string) : page.searchedTo;
    if (done.next === null || ids.length < step) return done;
    left -= step;
  }
  return done;
}
