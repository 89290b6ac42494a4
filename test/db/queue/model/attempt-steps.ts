import fc from "fast-check";
import { expect } from "vitest";
import type { Db } from "../../../../src/db/database.ts";
import { ATTEMPTS_PER_ROUND, recordAttempts } from "../../../../src/db/queue/results.ts";
import { NO_WAIT, result } from "../queue.ts";
import { claimFirst, claimRetries } from "./claim-steps.ts";
import { call, type Fault } from "./faults.ts";
import { type Effect, type Held, isAlive, type ModelWorker, NO_EFFECT, type StorageModel } from "./model.ts";
import { fault, inWords, number, often, pick, type Step, step } from "./step.ts";

/** Longer than any history takes. */
const RETRY_AFTER_MS = 24 * 3_600_000;

/** The result of an attempt. */
interface Tried {
  held: Held;
  ok: boolean;
  /** Whether the receiver asks for a later retry. */
  waits: boolean;
}

/** Sends what was not sent, and records the results. */
async function record(
  model: StorageModel,
  on: Db,
  worker: ModelWorker,
  tried: readonly Tried[],
  fault: Fault,
): Promise<Effect> {
  const counting = new Map<string, Tried>();
  for (const each of tried) {
    const { held } = each;
    // Without a payload, the attempt fails without a request.
    if (!held.posted && !held.erased) model.post(worker, held);
    if (model.matches(worker, held)) counting.set(held.delivery.id, each);
  }
  const results = tried.map(({ held, ok, waits }) => ({
    ...result(held.delivery, ok && !held.erased ? 200 : 500),
    retryAfterMs: !ok && waits ? RETRY_AFTER_MS : null,
  }));
  const heard = await call(on, fault, (db) => recordAttempts(db, results, NO_WAIT));
  if (heard) {
    expect(new Set(heard.answer.keys()), "recorded").toEqual(new Set(counting.keys()));
    for (const { held } of tried) model.settle(worker, held);
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
      return after.table === "retries" && after.waits === (!each.ok && each.waits) && after.claims === 0;
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

const sendOne = fc
  .record({ n: number, ok: fc.boolean(), waits: fc.nat({ max: 2 }), fault })
  .map(({ n, ok, waits, fault }) =>
    step(
      `a worker sends ${n} and records ${ok ? "success" : "failure"}${inWords(fault)}`,
      (model) => pick(sendable(model), n),
      (model, on, { worker, held }) => record(model, on, worker, [{ held, ok, waits: waits === 0 }], fault),
    ),
  );

const sendAll = fc.record({ n: number, fault }).map(({ n, fault }) =>
  step(
    `a worker sends all that it holds and records the results, ${n % 3} of 3 successful${inWords(fault)}`,
    (model) => pick([...Map.groupBy(sendable(model), ({ worker }) => worker)], n),
    (model, on, [worker, some]) =>
      record(
        model,
        on,
        worker,
        some.map(({ held }, place) => ({ held, ok: place % 3 < n % 3, waits: (n + place) % 4 === 0 })),
        fault,
      ),
  ),
);

const late = fc.record({ n: number, ok: fc.boolean() }).map(({ n, ok }) =>
  step(
    `a late ${ok ? "success" : "failure"} of a worker that has lost its claims`,
    (model) => {
      const lost = sendable(model).filter(({ worker }) => worker.state === "dead");
      // Rather one whose delivery another worker has claimed since.
      const claimedSince = lost.filter(({ held }) => {
        const place = model.place(held.delivery.id);
        return place !== undefined && model.isHeld(place);
      });
      return pick(claimedSince.length > 0 ? claimedSince : lost, n);
    },
    (model, on, { worker, held }) => record(model, on, worker, [{ held, ok, waits: false }], null),
  ),
);

const send = number.map((n) =>
  step(
    `a worker sends ${n} without a result yet`,
    (model) =>
      pick(
        sendable(model).filter(({ held }) => !held.posted && !held.erased),
        n,
      ),
    async (model, _on, { worker, held }) => {
      model.post(worker, held);
      return NO_EFFECT;
    },
  ),
);

/** Which of a worker's attempts are successful. */
const outcomes = fc.constantFrom("success", "failure", "both");

const deliver = fc.record({ w: number, outcomes, fault }).map(({ w, outcomes, fault }) =>
  step(
    `worker ${w} claims, sends and records: ${outcomes}${inWords(fault)}`,
    (model) => pick(model.working, w),
    async (model, on, worker) => {
      await on.raw("update retries set due = now() where due > now()");
      await model.check(DUE);
      await model.check(await claimRetries(model, on, worker, { n: w, limit: 10 }, null));
      await model.check(await claimFirst(model, on, worker, 10, null));
      const tried = sendableOf(worker).map((held, place) => ({
        held,
        ok: outcomes === "success" || (outcomes === "both" && place % 2 === 0),
        waits: false,
      }));
      return tried.length === 0 ? NO_EFFECT : record(model, on, worker, tried, fault);
    },
  ),
);

const wait = fc.constant(
  step(
    "wait until every retry is due",
    (model) => (model.places.some(({ waits }) => waits) ? true : undefined),
    async (_model, on) => {
      await on.raw("update retries set due = now() where due > now()");
      return DUE;
    },
  ),
);

/** Retries become due. */
const DUE: Effect = {
  may: (before, after) => before?.waits === true && after?.table === "retries" && !after.waits,
};

/** Workers send what they hold, and record the results. */
export const attemptSteps: fc.Arbitrary<Step>[] = [
  ...often(3, sendOne),
  ...often(2, sendAll),
  ...often(2, late),
  ...often(2, send),
  ...often(4, deliver),
  wait,
];

/** Everything that waits is delivered, or fails. */
export const deliverSteps: fc.Arbitrary<Step>[] = often(6, deliver);
