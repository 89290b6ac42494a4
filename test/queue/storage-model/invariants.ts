import { expect } from "vitest";
import { type Db, rows } from "../../../src/lib/pg/database.ts";
import { ATTEMPTS_PER_ROUND } from "../../../src/queue/results.ts";
import { countsSince } from "../../../src/stats/rollups.ts";
import { imbalance, readLedger } from "../../support/ledger.ts";
import type { StorageModel } from "./model.ts";
import { type Place, type Snapshot, type StoredWebhook, typeName } from "./snapshot.ts";

/** Why deliveries end in a state; null stands for an attempt. */
const REASONS: Record<string, (string | null)[]> = {
  delivered: [null],
  failed: [null, "expired", "queue full", "interrupted"],
  cancelled: ["webhook deleted", "payload erased"],
  filtered: ["filter not matched"],
};

/** A row before and after a step; null stands for one that is not there. */
export type Change = [before: Place | null, after: Place | null];

/** As `expect(actual, what).toBe(expected)`, which takes most of a step's time if it is called for each row. */
function is<T>(actual: T, expected: T, what: string): void {
  if (actual !== expected) expect(actual, what).toBe(expected);
}

/** What holds after every step. @param replacesProbes whether the step may replace the probe of a circuit breaker */
export function expectInvariants(
  model: StorageModel,
  before: Snapshot,
  after: Snapshot,
  changed: readonly Change[],
  replacesProbes: boolean,
): void {
  for (const [, place] of changed) if (place) expectSound(place);
  expectWebhooks(model, after);
  expectEvents(model, after);
  expectRevisions(before, after);
  if (!replacesProbes) expectOneProbe(model, before, after);
}

function expectSound({ id, table, attempts, roundStart, outcome, reason }: Place): void {
  const made = attempts - roundStart;
  is(made >= 0 && made <= ATTEMPTS_PER_ROUND, true, `${made} attempts in a round of ${id}`);
  if (table === "retries") is(made > 0 && made < ATTEMPTS_PER_ROUND, true, `${made} attempts, retrying`);
  if (table !== "deliveries") return;
  expect(REASONS[outcome as string], `the reason why ${id} is ${outcome}`).toContain(reason);
  if (outcome === "filtered") is(made, 0, "attempts of a filtered delivery in its round");
  if (outcome === "failed" && reason === null) is(made, ATTEMPTS_PER_ROUND, "attempts of a failed round");
}

function expectWebhooks(model: StorageModel, { webhooks, types }: Snapshot): void {
  const live = new Map<string, number>();
  is(webhooks.size, model.webhooks.length, "webhooks");
  for (const { id, customer, process, url, live: isLive, paused, filter } of model.webhooks) {
    const stored = webhooks.get(id) as StoredWebhook;
    is(stored.customer, customer, `the customer of webhook ${id}`);
    is(stored.url, url, `the URL of webhook ${id}`);
    is(stored.deleted, !isLive, `webhook ${id} is deleted`);
    is(stored.filter, filter?.expression ?? null, `the filter of webhook ${id}`);
    if (!isLive) continue;
    const type = typeName({ customer, process });
    live.set(type, (live.get(type) ?? 0) + 1);
    is(stored.paused, paused || isHeldBack(stored), `webhook ${id} is paused`);
  }
  for (const [type, stored] of types) {
    is(stored.live, live.get(type) ?? 0, `live webhooks of type ${type}`);
    if (stored.customer !== null) continue;
    const ofCustomers = model.liveWebhooks.filter(
      ({ customer, process }) => customer !== null && process === stored.process,
    );
    is(stored.customersLive, ofCustomers.length, `live webhooks of customers of type ${stored.process}`);
  }
}

/** Every event is there, and has its recipients, each once, but for those that are still to be fanned out. */
function expectEvents(model: StorageModel, { events, places }: Snapshot): void {
  const got = Map.groupBy(places.values(), ({ eventId }) => eventId);
  is(events.size, model.events.size, "events");
  for (const { id, recipients, erased } of model.events.values()) {
    const stored = events.get(id);
    is(stored?.recipients, recipients.size, `recorded recipients of event ${id}`);
    is(stored?.erased, erased, `event ${id} is erased`);
    const webhookIds = new Set<bigint>();
    for (const { webhookId } of got.get(id) ?? []) {
      is(webhookIds.has(webhookId), false, `webhook ${webhookId} gets an event twice`);
      is(recipients.has(webhookId), true, `webhook ${webhookId} gets an event that is for it`);
      webhookIds.add(webhookId);
    }
    is(webhookIds.size + (stored?.remaining ?? 0), recipients.size, `recipients of event ${id}`);
  }
}

/** Workers learn from the revisions of their owner that webhooks were paused, resumed, moved or deleted; other owners' stay as they are. */
function expectRevisions(before: Snapshot, after: Snapshot): void {
  const changed = [...after.webhooks.values()].filter((webhook) => {
    const was = before.webhooks.get(webhook.id);
    const ofBreaker = ({ paused, breaker, testDelivery }: StoredWebhook) =>
      `${paused} ${breaker} ${testDelivery}`;
    return !was || was.revision !== webhook.revision || ofBreaker(was) !== ofBreaker(webhook);
  });
  const types = new Set(changed.map(typeName));
  const revisionOf = ({ types: all }: Snapshot, type: string) => all.get(type)?.revision ?? 0;
  for (const { id, url, paused, deleted, ...webhook } of changed) {
    const was = before.webhooks.get(id);
    const isTold = !was || was.url !== url || was.paused !== paused || was.deleted !== deleted;
    const type = typeName(webhook);
    if (isTold)
      is(revisionOf(after, type) > revisionOf(before, type), true, `workers learn of webhook ${id}`);
  }
  for (const type of after.types.keys())
    if (!types.has(type))
      is(revisionOf(after, type), revisionOf(before, type), `the revision of type ${type}`);
}

/** An open circuit breaker lets another probe through only when the one before has a result. */
function expectOneProbe(model: StorageModel, before: Snapshot, after: Snapshot): void {
  for (const was of before.webhooks.values()) {
    const is = after.webhooks.get(was.id);
    if (was.breaker !== "open" || is?.breaker !== "open" || was.testDelivery === null) continue;
    if (is.testDelivery === was.testDelivery && is.probeAttempts === was.probeAttempts) continue;
    const place = after.places.get(was.testDelivery);
    const isOpen =
      was.probeAttempts === null
        ? place?.table === "queue"
        : place?.table === "retries" && place.attempts === was.probeAttempts;
    expect(isOpen && model.isHeld(place as Place), "a probe is replaced while it is in flight").toBe(false);
  }
}

export const isHeldBack = ({ breaker }: StoredWebhook) => breaker !== null && breaker !== "closed";

const OUTCOMES = ["delivered", "failed", "cancelled", "filtered"] as const;

/** Outcomes by webhook and the minute or hour in which they came, and attempts by webhook; webhook 0 stands for all. */
const sumsOf = (source: string) => `
  select webhook_id, start, ${OUTCOMES.map((outcome) => `sum(${outcome})::int as ${outcome}`)},
    sum(attempts)::int as attempts, sum(failed_attempts)::int as failed_attempts, sum(total_ms)::int as total_ms,
    max(longest_ms) as longest_ms
  from (${source}) each group by 1, 2
  having sum(attempts) <> 0 or ${OUTCOMES.map((outcome) => `sum(${outcome}) <> 0`).join(" or ")}
  order by 1, 2`;

const countedIn = (unit: "minute" | "hour") =>
  sumsOf(`
    with counted as (${countsSince(unit, "true", "true")})
    select webhook_id, start, ${OUTCOMES}, 0 as attempts, 0 as failed_attempts, 0 as total_ms, 0 as longest_ms from counted
    union all
    select webhook_id, null, ${OUTCOMES.map(() => 0)}, attempts, failed_attempts, total_ms, greatest(0, longest_ms) from counted`);

const loggedIn = (unit: "minute" | "hour") =>
  sumsOf(`
    with logged as (
      select webhook_id, date_trunc('${unit}', finished) as start,
        ${OUTCOMES.map((outcome) => `(outcome = '${outcome}')::int as ${outcome}`)},
        0 as attempts, 0 as failed_attempts, 0 as total_ms, 0 as longest_ms from deliveries
      union all
      select d.webhook_id, null, ${OUTCOMES.map(() => 0)}, 1, (a.status >= 300)::int, a.duration_ms, a.duration_ms
        from all_attempts a join all_deliveries d on d.id = a.delivery_id
    )
    select * from logged
    union all
    select 0, start, ${OUTCOMES}, attempts, failed_attempts, total_ms, longest_ms from logged`);

/** The ledger balances, and statistics are those of the log. */
export async function expectStatistics(db: Db): Promise<void> {
  expect(imbalance(await readLedger(db)), "imbalance of the ledger").toBe(0n);
  await expectRollups(db);
}

/** Statistics are those of the log and its attempts, whether they are folded or not. */
export async function expectRollups(db: Db): Promise<void> {
  for (const unit of ["minute", "hour"] as const) {
    const counted = await rows(db, countedIn(unit), {}, { prepare: `model_counted_${unit}` });
    const logged = await rows(db, loggedIn(unit), {}, { prepare: `model_logged_${unit}` });
    expect(counted, `statistics per ${unit}`).toEqual(logged);
  }
}

/** Attempts are numbered from 1 without a gap, as many as the delivery says. */
export async function expectAttempts(model: StorageModel): Promise<void> {
  const wrong = await rows(
    model.db,
    `select d.id, d.attempts from all_deliveries d left join all_attempts a on a.delivery_id = d.id
      group by d.id, d.attempts having count(a.number) <> d.attempts or coalesce(max(a.number), 0) <> d.attempts`,
  );
  expect(wrong).toEqual([]);
}
