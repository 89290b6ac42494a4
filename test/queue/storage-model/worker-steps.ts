import { expect } from "vitest";
import { loadStopped } from "../../../src/queue/changes.ts";
import { claimDue, claimPending, MAX_CLAIMS, release } from "../../../src/queue/claims.ts";
import { endFiltered } from "../../../src/queue/endings.ts";
import { endExpiredWorkers, renewWorker } from "../../../src/queue/workers.ts";
import { ALL } from "../queue.ts";
import { claimFirst } from "./attempt-steps.ts";
import type { Fault } from "./faults.ts";
import { type Effect, ends, type Held, type ModelWorker, NO_EFFECT, type StorageModel } from "./model.ts";
import { type Chance, pick, steps } from "./step.ts";

/** Longer than any history takes. */
const LEASE_MS = 600_000;

/** Workers that hold something that was not sent, with all of it, or what is unmatched of it. */
const unsent = (model: StorageModel, isOne: (held: Held) => boolean = () => true) =>
  model.workers
    .map((worker) => ({ worker, some: worker.held.filter((held) => !held.posted && isOne(held)) }))
    .filter(({ some }) => some.length > 0);

const someUnsent = (model: StorageModel, { n }: Chance) => pick(unsent(model), n);

/** Releases claims, in one statement per table. */
async function letGo(model: StorageModel, worker: ModelWorker, some: Held[], fault: Fault): Promise<Effect> {
  const deliveries = some.map(({ delivery }) => delivery);
  const ids = new Set(
    deliveries.map(({ id }) => id).filter((id) => model.place(id)?.claimedBy === worker.id),
  );
  for (const held of some) held.released = true;
  const { heard, done } = await model.call(fault, (db) => release(db, worker.id, deliveries));
  if (heard) for (const held of some) model.settle(worker, held);
  // Who hears no answer releases them again.
  else await model.retire(worker);
  return {
    may: (before, after) =>
      before !== null &&
      ids.has(before.id) &&
      after?.table === before.table &&
      after.claimedBy === null &&
      after.claims === before.claims - 1 &&
      after.attempts === before.attempts,
    changes: done ? ids.size : undefined,
  };
}

const releaseSome = steps(
  1,
  ({ m }) => `a worker releases ${1 + (m % 3)} deliveries`,
  someUnsent,
  (model, { worker, some }, { m, fault }) => letGo(model, worker, some.slice(0, 1 + (m % 3)), fault),
);

const releaseStopped = steps(
  1,
  "a worker releases what it holds of stopped webhooks",
  someUnsent,
  async (model, { worker, some }, { fault }) => {
    const isStopped = ({ delivery: { webhook } }: Held) => {
      const stored = model.now.webhooks.get(webhook.id);
      return !stored || stored.paused || stored.deleted || stored.revision !== webhook.revision;
    };
    const webhooksOf = (held: readonly Held[]) => held.map(({ delivery }) => delivery.webhook);
    const stopped = some.filter(isStopped);
    const found = await loadStopped(model.db, webhooksOf(some));
    expect(new Set(found), "stopped webhooks").toEqual(new Set(webhooksOf(stopped).map(({ id }) => id)));
    return stopped.length === 0 ? NO_EFFECT : letGo(model, worker, stopped, fault);
  },
);

const filterOut = (times: number) =>
  steps(
    times,
    ({ m }) => `a worker ends what filters do not match${m % 2 === 0 ? ", twice" : ""}`,
    (model, { n, m }) => {
      const all = unsent(model, ({ unmatched }) => unmatched);
      // Rather one that has lost its claims.
      const lost = all.filter(({ worker }) => worker.state === "dead");
      return pick(m % 3 === 0 && lost.length > 0 ? lost : all, n);
    },
    async (model, { worker, some }, { m, fault }) => {
      const deliveries = some.map(({ delivery }) => delivery);
      const own = deliveries.filter(({ id }) => {
        const place = model.place(id);
        return place?.claimedBy === worker.id && place.table === "queue";
      });
      const { heard } = await model.call(fault, (db) => endFiltered(db, worker.id, deliveries));
      if (heard) {
        if (m % 2 === 0) await endFiltered(model.db, worker.id, deliveries);
        for (const held of some) model.settle(worker, held);
        // Who hears no answer ends them again.
      } else await model.retire(worker);
      // The first statement ends them, the second lets probes go.
      const effect = fault === 0 ? NO_EFFECT : ends(own, "filter not matched");
      if (!heard) return effect;
      await model.check(effect);
      const probes = [...model.now.webhooks.values()].map(({ testDelivery }) => testDelivery);
      for (const { id } of own) expect(probes, "a filtered delivery stays the probe").not.toContain(id);
      return NO_EFFECT;
    },
  );

const expire = ({ db }: StorageModel, { id }: ModelWorker) =>
  db.raw("update workers set lease_until = now() - interval '1 second' where id = ?", [id]);

const die = steps(
  2,
  ({ n }) => `worker ${n} dies`,
  (model, { n, m }) => {
    // Rather one that is at work: what it does late may meet another worker's claim.
    const busy = model.working.filter(({ held }) =>
      held.some(({ posted, unmatched }) => posted || unmatched),
    );
    return m % 3 > 0 ? undefined : pick(busy.length > 0 ? busy : model.working, n);
  },
  async (model, worker) => {
    await expire(model, worker);
    expect(await endExpiredWorkers(model.db)).toEqual(["model"]);
    worker.state = "dead";
    expect(await renewWorker(model.db, worker.id, LEASE_MS)).toBe(false);
    // Its claims would be free at once, and count.
    const claimant = { workerId: worker.id, runId: model.runId };
    expect((await claimPending(model.db, claimant, ALL)).touched, "a dead worker claims").toBe(0);
    const due = { groups: [{ runId: model.runId, group: 1 }], limit: 10, excluded: [] };
    expect((await claimDue(model.db, worker.id, due)).touched, "a dead worker claims retries").toBe(0);
    await model.addWorker();
    return NO_EFFECT;
  },
);

const renewLate = steps(
  1,
  ({ n }) => `worker ${n} renews its lease after it has expired, and after another worker has claimed`,
  (model, { n }) => pick(model.working, n),
  async (model, worker) => {
    await expire(model, worker);
    const other = model.working.find((each) => each !== worker);
    if (other) await model.check(await claimFirst(model, other, 10, null));
    expect(await renewWorker(model.db, worker.id, LEASE_MS)).toBe(true);
    expect(await endExpiredWorkers(model.db)).toEqual([]);
    return NO_EFFECT;
  },
);

const wearOut = steps(
  1,
  ({ n }) => `${MAX_CLAIMS} workers crash with delivery ${n}`,
  (model, { n, m }) => (m % 3 > 0 ? undefined : pick(model.open, n, (place) => !model.isHeld(place))),
  async (model, { id, table }) => {
    await model.db(table).where({ id }).update({ claims: MAX_CLAIMS });
    return {
      may: (before, after) => before?.id === id && after?.table === table && after.claims === MAX_CLAIMS,
    };
  },
);

/** Workers end claims without an attempt, and die. */
export const workerSteps = [
  ...releaseSome,
  ...releaseStopped,
  ...filterOut(2),
  ...die,
  ...renewLate,
  ...wearOut,
];

/** Workers end what filters do not match. */
export const filterOutSteps = filterOut(4);
