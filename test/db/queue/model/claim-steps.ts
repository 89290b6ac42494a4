import fc from "fast-check";
import { expect } from "vitest";
import { type Db, rows } from "../../../../src/db/database.ts";
import {
  type ClaimedDelivery,
  type ClaimResult,
  claimGroup,
  claimPending,
  MAX_CLAIMS,
} from "../../../../src/db/queue/claims.ts";
import { loadContents } from "../../../../src/db/queue/event-contents.ts";
import {
  adoptRetries,
  assignGroups,
  groupStatuses,
  leavePaused,
} from "../../../../src/db/queue/retry-groups.ts";
import { call, type Fault } from "./faults.ts";
import { workerFilters } from "./filters.ts";
import { isHeldBack } from "./invariants.ts";
import { type Effect, type ModelWorker, NO_EFFECT, type StorageModel } from "./model.ts";
import type { Place } from "./snapshot.ts";
import { fault, inWords, number, often, pick, type Step, step } from "./step.ts";

/** Deliveries whose first attempt can be claimed. */
function claimable(model: StorageModel): Place[] {
  return model.places.filter((place) => {
    if (place.table !== "queue" || model.isHeld(place)) return false;
    const webhook = model.now.webhooks.get(place.webhookId);
    return !webhook?.deleted && (!webhook?.paused || webhook.testDelivery === place.id);
  });
}

/** A claim marks rows that nobody held, and ends those that were claimed too often; nothing else changes. */
function claims({ id }: ModelWorker, isClaimable: (place: Place) => boolean, changes?: number): Effect {
  return {
    may: (before, after) => {
      if (!before || !after || !isClaimable(before)) return false;
      // A claim of which the answer is lost leaves it to the next one to end them.
      if (after.table === before.table)
        return (
          after.claimedBy === id && after.claims === before.claims + 1 && after.attempts === before.attempts
        );
      return (
        before.claims >= MAX_CLAIMS && after.reason === "interrupted" && after.attempts === before.attempts
      );
    },
    ...(changes === undefined ? {} : { changes }),
  };
}

/** Of a webhook that its circuit breaker holds back, only the probe is claimed. */
function expectProbe(model: StorageModel, { id, webhook, token }: ClaimedDelivery): void {
  const stored = model.now.webhooks.get(webhook.id);
  if (!stored || !isHeldBack(stored)) return;
  expect(stored.testDelivery, "a claim took more than the probe").toBe(id);
  if (token.table === "retries") expect(stored.probeAttempts).toBe(token.attempts);
  model.count("probe claimed");
}

/** Takes over what a worker has claimed: reads payloads, and evaluates filters. */
async function take(model: StorageModel, worker: ModelWorker, { deliveries }: ClaimResult): Promise<void> {
  const contents = await loadContents(
    model.db,
    deliveries.map(({ eventId }) => eventId),
    { maxBytes: 1_000_000, alone: true },
  );
  const contentOf = ({ eventId }: { eventId: string }) =>
    contents.get(eventId) as NonNullable<ReturnType<typeof contents.get>>;
  const first = deliveries.filter(({ token }) => token.table === "queue");
  const unmatched = await workerFilters.unmatched(first, contentOf);
  for (const delivery of deliveries) {
    const { process, userId, test, erased } = model.eventOf(delivery);
    expect(contentOf(delivery)).toMatchObject({ process, userId, test, payload: erased ? null : "{}" });
    const webhook = model.webhook(delivery.webhook.id);
    const { url, filter } = webhook;
    expectProbe(model, delivery);
    expect(delivery.webhook.target.url, "the URL at the claim").toBe(url);
    expect(delivery.webhook.filter ?? null, "the filter at the claim").toBe(filter?.expression ?? null);
    const isUnmatched =
      delivery.token.table === "queue" && !test && !erased && filter?.matches(userId) === false;
    expect(unmatched.has(delivery), "unmatched").toBe(isUnmatched);
    worker.held.push({ delivery, erased, unmatched: isUnmatched, posted: false, released: false });
  }
}

/** Claims first attempts. */
export async function claimFirst(
  model: StorageModel,
  on: Db,
  worker: ModelWorker,
  limit: number,
  fault: Fault,
): Promise<Effect> {
  const free = claimable(model);
  const ids = new Set(free.map(({ id }) => id));
  const isClaimable = ({ id }: Place) => ids.has(id);
  const claimant = { workerId: worker.id, runId: model.runId };
  const claim = (after: bigint) =>
    call(on, fault, (db) => claimPending(db, claimant, { limit, after, excluded: [] }, worker.webhooks));
  let heard = await claim(0n);
  // A claim visits as many webhooks as it may take deliveries; the next one goes on after them.
  while (heard && heard.answer.touched === 0 && heard.answer.next !== null)
    heard = await claim(heard.answer.next);
  if (!heard) {
    await model.retire(worker);
    return claims(worker, isClaimable);
  }
  const { touched, deliveries } = heard.answer;
  expect(touched > 0, "a claim takes something").toBe(free.length > 0);
  expect(touched).toBeLessThanOrEqual(limit);
  const taken = new Set(deliveries.map(({ id }) => id));
  for (const { id, webhookId, claims } of free)
    if (!taken.has(id) && claims < MAX_CLAIMS)
      for (const { id: claimed, webhook } of deliveries)
        if (webhook.id === webhookId) expect(claimed < id, "a webhook's oldest are claimed").toBe(true);
  await take(model, worker, heard.answer);
  return claims(worker, isClaimable, touched);
}

/** Claims due retries of the n-th group of the run. */
export async function claimRetries(
  model: StorageModel,
  on: Db,
  worker: ModelWorker,
  { n, limit }: { n: number; limit: number },
  fault: Fault,
): Promise<Effect> {
  const { runId } = model;
  await leavePaused(on, runId);
  await adoptRetries(on, runId);
  await expectAdopted(model);
  const group = pick(await assignGroups(on, runId), n)?.group;
  if (group === undefined) return NO_EFFECT;
  const [status] = await groupStatuses(on, [{ runId, group }]);
  const isClaimable = (place: Place) => place.table === "retries" && !place.waits && !model.isHeld(place);
  const claimant = { workerId: worker.id, runId };
  const options = { group, limit, excluded: [] };
  const heard = await call(on, fault, (db) => claimGroup(db, claimant, options, worker.webhooks));
  if (!heard) {
    await model.retire(worker);
    return claims(worker, isClaimable);
  }
  // The status of a group tells whether there is something to claim, what others hold included.
  expect(heard.answer.touched > 0, "a claim takes something").toBe(
    status !== undefined && status.open > 0 && status.delayMs === 0,
  );
  await take(model, worker, heard.answer);
  return claims(worker, isClaimable, heard.answer.touched);
}

/** The open run has all due retries that may be sent, and no others, once it has left and adopted some. */
async function expectAdopted({ db, runId }: StorageModel): Promise<void> {
  const wrong = await rows(
    db,
    `select t.id, t.run_id, t.due, w.paused, w.deleted from retries t join webhooks w on w.id = t.webhook_id
      where case when t.run_id = :runId::int
        then w.deleted is not null or w.paused is not null and (t.id = w.test_delivery and t.attempts = w.probe_attempts) is not true
        else t.due <= now() and w.paused is null and w.deleted is null end`,
    { runId },
  );
  expect(wrong, "retries that are wrongly in the run, or not in it").toEqual([]);
}

const limit = fc.integer({ min: 1, max: 4 });
const working = (n: number) => (model: StorageModel) => pick(model.working, n);

const first = fc.record({ w: number, limit, fault }).map(({ w, limit, fault }) =>
  step(
    `worker ${w} claims ${limit} first attempts${inWords(fault)}`,
    (model) => (claimable(model).length > 0 || w % 5 === 0 ? working(w)(model) : undefined),
    (model, on, worker) => claimFirst(model, on, worker, limit, fault),
  ),
);

const retries = fc.record({ w: number, limit, fault }).map(({ w, limit, fault }) =>
  step(
    `worker ${w} claims ${limit} retries${inWords(fault)}`,
    (model) =>
      model.places.some(({ table }) => table === "retries") || w % 5 === 0 ? working(w)(model) : undefined,
    (model, on, worker) => claimRetries(model, on, worker, { n: w, limit }, fault),
  ),
);

/** Workers claim deliveries. */
export const claimSteps: fc.Arbitrary<Step>[] = [...often(4, first), ...often(3, retries)];

/** Workers claim first attempts. */
export const firstClaimSteps: fc.Arbitrary<Step>[] = often(2, first);
