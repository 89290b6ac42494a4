import { expect } from "vitest";
import { rows } from "../../../../src/db/database.ts";
import { imbalance, readLedger } from "../../../../src/db/deliveries/ledger.ts";
import { countsSince } from "../../../../src/db/deliveries/rollups.ts";
import { ATTEMPTS_PER_ROUND } from "../../../../src/db/queue/results.ts";
import type { StorageModel } from "./model.ts";
import type { Place, Snapshot, StoredWebhook } from "./snapshot.ts";

/** Why deliveries end in a state; null stands for an attempt. */
const REASONS: Record<string, (string | null)[]> = {
  delivered: [null],
  failed: [null, "expired", "queue full", "interrupted"],
  cancelled: ["webhook deleted", "payload erased"],
  filtered: ["filter not matched"],
};

/** What holds after every step. @param replacesProbes whether the step may replace the probe of a circuit breaker */
export async function expectInvariants(
  model: StorageModel,
  before: Snapshot,
  after: Snapshot,
  replacesProbes: boolean,
): Promise<void> {
  expect(imbalance(await readLedger(model.db)), "imbalance of the ledger").toBe(0n);
  for (const place of after.places.values()) expectSound(place);
  expectWebhooks(model, after);
  expectEvents(model, after);
  expectRevisions(before, after);
  if (!replacesProbes) expectOneProbe(model, before, after);
}

function expectSound({ id, table, attempts, roundStart, outcome, reason }: Place): void {
  const made = attempts - roundStart;
  expect(made >= 0 && made <= ATTEMPTS_PER_ROUND, `${made} attempts in a round of ${id}`).toBe(true);
  if (table === "retries")
    expect(made > 0 && made < ATTEMPTS_PER_ROUND, `${made} attempts, retrying`).toBe(true);
  if (table !== "deliveries") return;
  expect(REASONS[outcome as string], `the reason why ${id} is ${outcome}`).toContain(reason);
  if (outcome === "filtered") expect(made, "attempts of a filtered delivery in its round").toBe(0);
  if (outcome === "failed" && reason === null)
    expect(made, "attempts of a failed round").toBe(ATTEMPTS_PER_ROUND);
}

function expectWebhooks(model: StorageModel, { webhooks, processes }: Snapshot): void {
  const live = new Map<number, number>();
  for (const { id, process, url, live: isLive, paused, filter } of model.webhooks) {
    const stored = webhooks.get(id);
    expect(stored).toMatchObject({ url, deleted: !isLive, filter: filter?.expression ?? null });
    if (!isLive) continue;
    live.set(process, (live.get(process) ?? 0) + 1);
    expect(stored?.paused, `webhook ${id} is paused`).toBe(paused || isHeldBack(stored as StoredWebhook));
  }
  expect(webhooks.size, "webhooks").toBe(model.webhooks.length);
  for (const [process, stored] of processes) expect(stored.live).toBe(live.get(process) ?? 0);
}

/** Every event is there, and has its recipients, each once, but for those that are still to be fanned out. */
function expectEvents(model: StorageModel, { events, places }: Snapshot): void {
  const got = Map.groupBy(places.values(), ({ eventId }) => eventId);
  expect(events.size, "events").toBe(model.events.size);
  for (const { id, recipients, erased } of model.events.values()) {
    const stored = events.get(id);
    expect(stored).toMatchObject({ recipients: recipients.size, erased });
    const webhookIds = (got.get(id) ?? []).map(({ webhookId }) => webhookId);
    expect(new Set(webhookIds).size, "a webhook gets an event twice").toBe(webhookIds.length);
    for (const webhookId of webhookIds)
      expect(recipients.has(webhookId), `webhook ${webhookId} gets an event that is not for it`).toBe(true);
    expect(webhookIds.length + (stored?.remaining ?? 0), "recipients of an event").toBe(recipients.size);
  }
}

/** Workers learn from revisions that webhooks were paused, resumed, moved or deleted. */
function expectRevisions(before: Snapshot, after: Snapshot): void {
  const changed = [...after.webhooks.values()].some(({ id, url, paused, deleted }) => {
    const was = before.webhooks.get(id);
    return was && (was.url !== url || was.paused !== paused || was.deleted !== deleted);
  });
  const sum = ({ processes }: Snapshot) =>
    [...processes.values()].reduce((total, { revision }) => total + revision, 0n);
  if (changed) expect(sum(after) > sum(before), "workers learn of a change").toBe(true);
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

/** Statistics are those of the log and its attempts, per webhook and for all. */
export async function expectStatistics(model: StorageModel): Promise<void> {
  const real = await rows(
    model.db,
    `select coalesce(webhook_id, 0) as webhook_id, sum(tried)::int as attempts, ${[
      "delivered",
      "failed",
      "cancelled",
      "filtered",
    ]
      .map((state) => `(count(*) filter (where state = '${state}'))::int as ${state}`)
      .join(", ")}
      from (
        select d.webhook_id, d.state, (select count(*) from all_attempts a where a.delivery_id = d.id) as tried
        from all_deliveries d
      ) d group by rollup (webhook_id)
      having sum(tried) > 0 or count(*) filter (where state in ('delivered', 'failed', 'cancelled', 'filtered')) > 0
      order by 1`,
  );
  for (const unit of ["minute", "hour"] as const) {
    const counted = await rows(
      model.db,
      `select * from (
          select webhook_id, sum(attempts)::int as attempts, sum(delivered)::int as delivered, sum(failed)::int as failed,
            sum(cancelled)::int as cancelled, sum(filtered)::int as filtered
          from (${countsSince(unit, "true", "true")}) c group by 1
        ) c where attempts + delivered + failed + cancelled + filtered > 0 order by 1`,
    );
    expect(counted, `statistics per ${unit}`).toEqual(real);
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
