import pino from "pino";
import { expect } from "vitest";
import { Filters } from "../../../src/delivery/filters/filters.ts";
import { fanOutStep } from "../../../src/events/fan-out.ts";
import { rows } from "../../../src/lib/pg/database.ts";
import {
  type ClaimedDelivery,
  type ClaimResult,
  claimDue,
  claimPending,
  MAX_CLAIMS,
} from "../../../src/queue/claims.ts";
import { cancelOfDeleted } from "../../../src/queue/deleted-webhooks.ts";
import { loadContents } from "../../../src/queue/event-contents.ts";
import { ATTEMPTS_PER_ROUND, recordAttempts } from "../../../src/queue/results.ts";
import { adoptRetries, assignGroups, leavePaused, settleGroups } from "../../../src/queue/retry-groups.ts";
import { endExpiredWorkers } from "../../../src/queue/workers.ts";
import { updateWebhook } from "../../../src/webhooks/webhook-update.ts";
import { inThisThread } from "../../support/filter-runner.ts";
import { ALL, freshWorker, NO_WAIT, result } from "../queue.ts";
import type { Fault } from "./faults.ts";
import { expectAttempts, expectStatistics, isHeldBack } from "./invariants.ts";
import { type Effect, type Held, isAlive, type ModelWorker, NO_EFFECT, type StorageModel } from "./model.ts";
import type { Place } from "./snapshot.ts";
import { type Chance, pick, steps } from "./step.ts";

const unmatchedOf = new Set<ClaimedDelivery>();
/** Evaluates filters as a worker does, at once. */
const workerFilters = new Filters<{ delivery: ClaimedDelivery }>(
  { runner: inThisThread, log: pino({ level: "silent" }), onSlow() {}, onStopped() {} },
  ({ delivery }, isSent) => {
    if (!isSent) unmatchedOf.add(delivery);
  },
  () => {},
);

/** Longer than any history takes. */
const RETRY_AFTER_MS = 24 * 3_600_000;

/** Deliveries whose first attempt can be claimed. */
function claimable(model: StorageModel): Place[] {
  return model.places.filter((place) => {
    if (place.table !== "queue" || model.isHeld(place)) return false;
    const webhook = model.now.webhooks.get(place.webhookId);
    return !webhook?.deleted && (!(webhook?.paused || webhook?.held) || webhook.testDelivery === place.id);
  });
}

/** A claim marks rows that nobody held, and ends those that were claimed too often; nothing else changes. */
function claims({ id }: ModelWorker, isClaimable: (place: Place) => boolean, changes?: number): Effect {
  return {
    may: (before, after) => {
      if (!before || !after || !isClaimable(before) || after.attempts !== before.attempts) return false;
      // A claim of which the answer is lost leaves it to the next one to end them.
      if (after.table === before.table) return after.claimedBy === id && after.claims === before.claims + 1;
      return before.claims >= MAX_CLAIMS && after.reason === "interrupted";
    },
    changes,
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
type Claimed = Pick<ClaimResult, "deliveries">;

async function take(model: StorageModel, worker: ModelWorker, { deliveries }: Claimed): Promise<void> {
  const eventIds = deliveries.map(({ eventId }) => eventId);
  const contents = await loadContents(model.db, eventIds, { maxBytes: 1_000_000, alone: true });
  const contentOf = ({ eventId }: { eventId: string }) =>
    contents.get(eventId) as NonNullable<ReturnType<typeof contents.get>>;
  const first = deliveries.filter(({ token }) => token.table === "queue");
  unmatchedOf.clear();
  for (const delivery of first) {
    const content = contentOf(delivery);
    if (workerFilters.appliesTo(delivery, content)) workerFilters.add({ delivery }, content);
  }
  const unmatched = new Set(unmatchedOf);
  for (const delivery of deliveries) {
    const { process, userId, test, erased } = model.eventOf(delivery);
    expect(contentOf(delivery)).toMatchObject({ process, userId, test, payload: erased ? null : "{}" });
    const { url, filter } = model.webhook(delivery.webhook.id);
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
export async function claimFirst(model: StorageModel, worker: ModelWorker, limit: number, fault: Fault) {
  const free = claimable(model);
  const ids = new Set(free.map(({ id }) => id));
  const isClaimable = ({ id }: Place) => ids.has(id);
  const claimant = { workerId: worker.id, runId: model.runId };
  const claim = (after: bigint) =>
    model.call(fault, (db) => claimPending(db, claimant, { limit, after, excluded: [] }, worker.webhooks));
  let { answer } = await claim(0n);
  // A claim visits as many webhooks as it may take deliveries; the next one goes on after them.
  while (answer && answer.touched === 0 && answer.next !== null) ({ answer } = await claim(answer.next));
  if (!answer) {
    await model.retire(worker);
    return claims(worker, isClaimable);
  }
  const { touched, deliveries } = answer;
  expect(touched > 0, "a claim takes something").toBe(free.length > 0);
  expect(touched).toBeLessThanOrEqual(limit);
  const taken = new Set(deliveries.map(({ id }) => id));
  for (const { id, webhookId, claims } of free)
    if (!taken.has(id) && claims < MAX_CLAIMS)
      for (const { id: claimed, webhook } of deliveries)
        if (webhook.id === webhookId) expect(claimed < id, "a webhook's oldest are claimed").toBe(true);
  await take(model, worker, answer);
  return claims(worker, isClaimable, touched);
}

/** Claims due retries of the n-th group of the run. */
async function claimRetries(model: StorageModel, worker: ModelWorker, limit: number, { n, fault }: Chance) {
  const { db, runId } = model;
  await leavePaused(db, runId);
  await adoptRetries(db, runId);
  await expectAdopted(model);
  const group = pick(await assignGroups(db, runId), n)?.group;
  if (group === undefined) return NO_EFFECT;
  const [status] = await settleGroups(db, [{ runId, group }]);
  const isClaimable = (place: Place) =>
    place.table === "retries" &&
    !place.waits &&
    !model.isHeld(place) &&
    !model.now.webhooks.get(place.webhookId)?.held;
  const options = { groups: [{ runId, group }], limit, excluded: [] };
  const { answer } = await model.call(fault, (on) => claimDue(on, worker.id, options, worker.webhooks));
  if (!answer) {
    await model.retire(worker);
    return claims(worker, isClaimable);
  }
  // The status of a group tells whether there is something to claim, what others hold included.
  const isReady = status !== undefined && status.open > 0 && status.delayMs === 0;
  expect(answer.touched > 0, "a claim takes something").toBe(isReady);
  await take(model, worker, answer);
  return claims(worker, isClaimable, answer.touched);
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

/** The result of an attempt. */
interface Try {
  held: Held;
  ok: boolean;
  /** Whether the receiver asks for a later retry. */
  waits?: boolean;
}

/** Sends what was not sent, and records the results. */
async function record(model: StorageModel, worker: ModelWorker, tries: Try[], fault: Fault): Promise<Effect> {
  const counting = new Map<string, Try>();
  for (const each of tries) {
    const { held } = each;
    // Without a payload, the attempt fails without a request.
    if (!held.posted && !held.erased) model.post(worker, held);
    if (model.matches(worker, held)) counting.set(held.delivery.id, each);
  }
  const results = tries.map(({ held, ok, waits }) => ({
    ...result(held.delivery, ok && !held.erased ? 200 : 500),
    retryAfterMs: !ok && waits ? RETRY_AFTER_MS : null,
  }));
  const { heard, answer } = await model.call(fault, (db) => recordAttempts(db, results, NO_WAIT));
  if (heard) {
    expect(new Set(answer.keys()), "recorded").toEqual(new Set(counting.keys()));
    for (const { held } of tries) model.settle(worker, held);
  }
  // Who hears no answer records them later. The second statement repeats the first for results that match nothing.
  if (!heard && fault === 0) return NO_EFFECT;
  return {
    may: (was, after) => {
      const each = was === null ? undefined : counting.get(was.id);
      if (!each || !was || !after) return false;
      const attempts = was.attempts + 1;
      if (after.attempts !== attempts || after.roundStart !== was.roundStart || after.claimedBy !== null)
        return false;
      if (each.ok && !each.held.erased) return after.outcome === "delivered";
      if (!model.webhook(was.webhookId).live) return after.reason === "webhook deleted";
      if (attempts - was.roundStart === ATTEMPTS_PER_ROUND)
        return after.outcome === "failed" && after.reason === null;
      const waits = !each.ok && each.waits === true;
      return after.table === "retries" && after.waits === waits && after.claims === 0;
    },
    changes: counting.size,
  };
}

/** What a worker may send, or has sent and has no result of. A worker whose lease was ended sends nothing more. */
const sendableOf = (worker: ModelWorker) =>
  worker.held.filter(
    ({ posted, unmatched, released }) => posted || (isAlive(worker.state) && !unmatched && !released),
  );

const sendable = (model: StorageModel) =>
  model.workers.flatMap((worker) => sendableOf(worker).map((held) => ({ worker, held })));

const working = (model: StorageModel, { n }: Chance) => pick(model.working, n);
const someLimit = ({ m }: Chance) => 1 + (m % 4);

const first = (times: number) =>
  steps(
    times,
    (chance) => `worker ${chance.n} claims ${someLimit(chance)} first attempts`,
    (model, chance) =>
      claimable(model).length > 0 || chance.n % 5 === 0 ? working(model, chance) : undefined,
    (model, worker, chance) => claimFirst(model, worker, someLimit(chance), chance.fault),
  );

const retries = steps(
  3,
  (chance) => `worker ${chance.n} claims ${someLimit(chance)} retries`,
  (model, chance) =>
    model.places.some(({ table }) => table === "retries") || chance.n % 5 === 0
      ? working(model, chance)
      : undefined,
  (model, worker, chance) => claimRetries(model, worker, someLimit(chance), chance),
);

const sendOne = steps(
  3,
  ({ n, m }) => `a worker sends ${n} and records ${m % 2 === 0 ? "success" : "failure"}`,
  (model, { n }) => pick(sendable(model), n),
  (model, { worker, held }, { m, fault }) =>
    record(model, worker, [{ held, ok: m % 2 === 0, waits: m % 3 === 0 }], fault),
);

const sendAll = steps(
  2,
  ({ m }) => `a worker sends all that it holds and records the results, ${m % 3} of 3 successful`,
  (model, { n }) => pick([...Map.groupBy(sendable(model), ({ worker }) => worker)], n),
  (model, [worker, some], { m, fault }) => {
    const tries = some.map(({ held }, at) => ({ held, ok: at % 3 < m % 3, waits: (m + at) % 4 === 0 }));
    return record(model, worker, tries, fault);
  },
);

const late = steps(
  2,
  ({ m }) => `a late ${m % 2 === 0 ? "success" : "failure"} of a worker that has lost its claims`,
  (model, { n }) => {
    const lost = sendable(model).filter(({ worker }) => worker.state === "dead");
    // Rather one whose delivery another worker has claimed since.
    const claimedSince = lost.filter(({ held }) => {
      const place = model.place(held.delivery.id);
      return place !== undefined && model.isHeld(place);
    });
    return pick(claimedSince.length > 0 ? claimedSince : lost, n);
  },
  (model, { worker, held }, { m }) => record(model, worker, [{ held, ok: m % 2 === 0 }], null),
);

const send = steps(
  2,
  ({ n }) => `a worker sends ${n} without a result yet`,
  (model, { n }) => pick(sendable(model), n, ({ held }) => !held.posted && !held.erased),
  async (model, { worker, held }) => {
    model.post(worker, held);
    return NO_EFFECT;
  },
);

/** Retries become due. */
async function makeDue({ db }: StorageModel): Promise<Effect> {
  await db.raw("update retries set due = now() where due > now()");
  return { may: (before, after) => before?.waits === true && after?.table === "retries" && !after.waits };
}

const deliverAll = (times: number) =>
  steps(
    times,
    ({ n, m }) => `worker ${n} claims, sends and records: ${["success", "failure", "both"][m % 3]}`,
    working,
    async (model, worker, { n, m, fault }) => {
      await model.check(await makeDue(model));
      await model.check(await claimRetries(model, worker, 10, { n, m, fault: null }));
      await model.check(await claimFirst(model, worker, 10, null));
      const isOk = (at: number) => m % 3 === 0 || (m % 3 === 2 && at % 2 === 0);
      const tries = sendableOf(worker).map((held, at) => ({ held, ok: isOk(at) }));
      return tries.length === 0 ? NO_EFFECT : record(model, worker, tries, fault);
    },
  );

const wait = steps(
  1,
  "wait until every retry is due",
  (model) => (model.places.some(({ waits }) => waits) ? true : undefined),
  makeDue,
);

/** Workers claim deliveries, send what they hold, and record the results. */
export const attemptSteps = [
  ...first(4),
  ...retries,
  ...sendOne,
  ...sendAll,
  ...late,
  ...send,
  ...deliverAll(4),
  ...wait,
];

/** Workers claim first attempts. */
export const firstClaimSteps = first(2);

/** Everything that waits is delivered, or fails. */
export const deliverSteps = deliverAll(6);

/** More rounds than any history needs: each leaves fewer open deliveries. */
const MAX_ROUNDS = 20;

/**
 * Ends a history: all workers die, webhooks are resumed, and another worker delivers everything. Nothing may stay open, and
 * the statistics and attempts must be right.
 */
export async function endHistory(model: StorageModel): Promise<void> {
  const { db, runId } = model;
  model.log.push("another worker delivers everything");
  await db.raw("update workers set lease_until = now() - interval '1 second'");
  await endExpiredWorkers(db);
  for (const worker of model.workers) worker.state = "dead";
  const workerId = await freshWorker(db, "last", 600_000);
  const claimant = { workerId, runId };
  for (const webhook of model.liveWebhooks) {
    webhook.paused = false;
    await updateWebhook(db, "everything", webhook.id, { paused: false, breaker: null });
  }
  await db.raw("update retries set due = now()");
  await db.raw("update webhooks set held_until = null");
  const deliver = async ({ deliveries }: Claimed) => {
    const results = deliveries.map((delivery) => result(delivery, 200));
    if (results.length > 0) expect((await recordAttempts(db, results, NO_WAIT)).size).toBe(results.length);
  };
  for (let round = 0; round < MAX_ROUNDS && (await isOpen(model)); round += 1) {
    while (await fanOutStep(db));
    while ((await cancelOfDeleted(db)) > 0);
    await deliver(await claimPending(db, claimant, ALL));
    await adoptRetries(db, runId);
    const groups = [...new Set((await assignGroups(db, runId)).map(({ group }) => group))];
    const due = { groups: groups.map((group) => ({ runId, group })), limit: 1_000, excluded: [] };
    await deliver(await claimDue(db, workerId, due));
  }
  await model.check({
    may: (before, after) => before?.table !== "deliveries" && after?.table === "deliveries",
  });
  expect(await isOpen(model), "deliveries stay open").toBe(false);
  await expectStatistics(model.db);
  await expectAttempts(model);
}

async function isOpen({ db }: StorageModel): Promise<boolean> {
  const [found] = await rows<{ open: boolean }>(
    db,
    "select exists (select from queue) or exists (select from retries) or exists (select from fan_out) as open",
  );
  return found?.open === true;
}
