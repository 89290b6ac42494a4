import fc from "fast-check";
import { expect } from "vitest";
import type { Db } from "../../../../src/db/database.ts";
import { loadStopped } from "../../../../src/db/queue/changes.ts";
import { claimGroup, claimPending, MAX_CLAIMS, release } from "../../../../src/db/queue/claims.ts";
import { endFiltered } from "../../../../src/db/queue/endings.ts";
import { endExpiredWorkers, renewWorker } from "../../../../src/db/queue/workers.ts";
import { ALL } from "../queue.ts";
import { claimFirst } from "./claim-steps.ts";
import { call, type Fault } from "./faults.ts";
import { type Effect, ends, type Held, type ModelWorker, NO_EFFECT, type StorageModel } from "./model.ts";
import { fault, inWords, number, often, pick, type Step, step } from "./step.ts";

/** Longer than any history takes. */
const LEASE_MS = 600_000;

/** Workers that hold something that was not sent, with all of it. */
const unsent = (model: StorageModel) =>
  model.workers
    .map((worker) => ({ worker, some: worker.held.filter(({ posted }) => !posted) }))
    .filter(({ some }) => some.length > 0);

/** Releases claims, in one statement per table. */
async function letGo(
  model: StorageModel,
  on: Db,
  worker: ModelWorker,
  some: readonly Held[],
  fault: Fault,
): Promise<Effect> {
  const own = some.filter(({ delivery: { id } }) => model.place(id)?.claimedBy === worker.id);
  const ids = new Set(own.map(({ delivery }) => delivery.id));
  const deliveries = some.map(({ delivery }) => delivery);
  for (const held of some) held.released = true;
  const heard = await call(on, fault, (db) => release(db, worker.id, deliveries));
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
    ...(heard || fault === "answer lost" ? { changes: ids.size } : {}),
  };
}

const releaseSome = fc.record({ n: number, fault }).map(({ n, fault }) =>
  step(
    `a worker releases ${1 + (n % 3)} deliveries${inWords(fault)}`,
    (model) => pick(unsent(model), n),
    (model, on, { worker, some }) => letGo(model, on, worker, some.slice(0, 1 + (n % 3)), fault),
  ),
);

const releaseStopped = fc.record({ n: number, fault }).map(({ n, fault }) =>
  step(
    `a worker releases what it holds of stopped webhooks${inWords(fault)}`,
    (model) => pick(unsent(model), n),
    async (model, on, { worker, some }) => {
      const isStopped = ({ delivery: { webhook } }: Held) => {
        const stored = model.now.webhooks.get(webhook.id);
        return !stored || stored.paused || stored.deleted || stored.revision !== webhook.revision;
      };
      const stopped = some.filter(isStopped);
      const found = await loadStopped(
        on,
        some.map(({ delivery }) => delivery.webhook),
      );
      expect(new Set(found), "stopped webhooks").toEqual(
        new Set(stopped.map(({ delivery }) => delivery.webhook.id)),
      );
      return stopped.length === 0 ? NO_EFFECT : letGo(model, on, worker, stopped, fault);
    },
  ),
);

const filterOut = fc.record({ n: number, again: fc.boolean(), fault }).map(({ n, again, fault }) =>
  step(
    `a worker ends what filters do not match${again ? ", twice" : ""}${inWords(fault)}`,
    (model) => {
      const all = unsent(model)
        .map(({ worker, some }) => ({ worker, some: some.filter(({ unmatched }) => unmatched) }))
        .filter(({ some }) => some.length > 0);
      // Rather one that has lost its claims.
      const lost = all.filter(({ worker }) => worker.state === "dead");
      return pick(n % 3 === 0 && lost.length > 0 ? lost : all, n);
    },
    async (model, on, { worker, some }) => {
      const deliveries = some.map(({ delivery }) => delivery);
      const own = deliveries.filter(({ id }) => {
        const place = model.place(id);
        return place?.claimedBy === worker.id && place.table === "queue";
      });
      const heard = await call(on, fault, (db) => endFiltered(db, worker.id, deliveries));
      if (heard) {
        if (again) await endFiltered(on, worker.id, deliveries);
        for (const held of some) model.settle(worker, held);
        // Who hears no answer ends them again.
      } else await model.retire(worker);
      // The first statement ends them, the second lets probes go.
      const effect = fault === 0 ? NO_EFFECT : ends(own, "filter not matched");
      if (!heard) return effect;
      await model.check(effect);
      for (const { testDelivery } of model.now.webhooks.values())
        expect(
          own.some(({ id }) => id === testDelivery),
          "a filtered delivery stays the probe",
        ).toBe(false);
      return NO_EFFECT;
    },
  ),
);

const expire = (on: Db, { id }: ModelWorker) =>
  on.raw("update workers set lease_until = now() - interval '1 second' where id = ?", [id]);

const die = number.map((n) =>
  step(
    `worker ${n} dies`,
    (model) => {
      // Rather one that is at work: what it does late may meet another worker's claim.
      const busy = model.working.filter(({ held }) =>
        held.some(({ posted, unmatched }) => posted || unmatched),
      );
      return n % 3 > 0 ? undefined : pick(busy.length > 0 ? busy : model.working, n);
    },
    async (model, on, worker) => {
      await expire(on, worker);
      expect(await endExpiredWorkers(on)).toEqual(["model"]);
      worker.state = "dead";
      expect(await renewWorker(on, worker.id, LEASE_MS)).toBe(false);
      // Its claims would be free at once, and count.
      const claimant = { workerId: worker.id, runId: model.runId };
      expect((await claimPending(on, claimant, ALL)).touched, "a dead worker claims").toBe(0);
      const group = { group: 1, limit: 10, excluded: [] };
      expect((await claimGroup(on, claimant, group)).touched, "a dead worker claims retries").toBe(0);
      await model.addWorker();
      return NO_EFFECT;
    },
  ),
);

const renewLate = number.map((n) =>
  step(
    `worker ${n} renews its lease after it has expired, and after another worker has claimed`,
    (model) => pick(model.working, n),
    async (model, on, worker) => {
      await expire(on, worker);
      const other = model.working.find((each) => each !== worker);
      if (other) await model.check(await claimFirst(model, on, other, 10, null));
      expect(await renewWorker(on, worker.id, LEASE_MS)).toBe(true);
      expect(await endExpiredWorkers(on)).toEqual([]);
      return NO_EFFECT;
    },
  ),
);

const wearOut = number.map((n) =>
  step(
    `${MAX_CLAIMS} workers crash with delivery ${n}`,
    (model) =>
      pick(
        n % 3 > 0 ? [] : model.places.filter((place) => place.table !== "deliveries" && !model.isHeld(place)),
        n,
      ),
    async (_model, on, { id, table }) => {
      await on(table).where({ id }).update({ claims: MAX_CLAIMS });
      return {
        may: (before, after) => before?.id === id && after?.table === table && after.claims === MAX_CLAIMS,
      };
    },
  ),
);

/** Workers end claims without an attempt, and die. */
export const workerSteps: fc.Arbitrary<Step>[] = [
  releaseSome,
  releaseStopped,
  ...often(2, filterOut),
  ...often(2, die),
  renewLate,
  wearOut,
];

/** Workers end what filters do not match. */
export const filterOutSteps: fc.Arbitrary<Step>[] = often(4, filterOut);
