import { expect } from "vitest";
import { decideBreakers } from "../../../src/breakers/decide.ts";
import { type Db, rows } from "../../../src/lib/pg/database.ts";
import { foldDeltas } from "../../../src/maintenance/fold.ts";
import { closeExpiredRuns, closeRun } from "../../../src/queue/runs.ts";
import { startsRound } from "./ending-steps.ts";
import { expectStatistics } from "./invariants.ts";
import { NO_EFFECT, type StorageModel } from "./model.ts";
import { always, steps } from "./step.ts";

async function retriesOfRun({ db, runId }: StorageModel): Promise<number> {
  const found = await rows(db, "select from retries where run_id = :runId::int", { runId });
  return found.length;
}

const isClosed = async ({ db, runId }: StorageModel) =>
  (await db("runs").where({ id: runId }).whereNull("closed").pluck("id")).length === 0;

const close = steps(1, "close the run, unless it has retries, and open another", always, async (model) => {
  const open = await retriesOfRun(model);
  expect(await closeRun(model.db, model.runId)).toMatchObject({ open, putBack: 0 });
  expect(await isClosed(model)).toBe(open === 0);
  if (open === 0) await model.openRun();
  return NO_EFFECT;
});

const abandon = steps(
  1,
  ({ n }) => `${n % 2 === 0 ? "the lease of the run expires" : "abandon the run"}, and open another`,
  (_model, { n }) => (n % 3 > 0 ? undefined : true),
  async (model, _chosen, { n, fault }) => {
    const { db, runId } = model;
    const isExpired = n % 2 === 0;
    const putBack = await retriesOfRun(model);
    const end = (on: Db): Promise<unknown> => (isExpired ? closeExpiredRuns(on) : closeRun(on, runId, true));
    expect(await closeExpiredRuns(db), "runs whose lease holds are closed").toBe(0);
    if (isExpired) await db.raw("update runs set lease_until = now() where id = ?", [runId]);
    const { heard, answer } = await model.call(fault, end);
    if (heard) expect(answer).toEqual(isExpired ? 1 : expect.objectContaining({ open: 0, putBack }));
    else await end(db);
    expect([await isClosed(model), await retriesOfRun(model)]).toEqual([true, 0]);
    await model.openRun();
    return NO_EFFECT;
  },
);

const decide = (times: number) =>
  steps(
    times,
    "ten minutes pass for circuit breakers, and decide on them",
    always,
    async (model, _chosen, { fault }) => {
      await foldDeltas(model.db);
      await model.db.raw(
        `update webhook_breakers set failing_since = failing_since - interval '10 minutes',
        next_probe = next_probe - interval '10 minutes', due = now()`,
      );
      const { done, answer } = await model.call(fault, (db) => decideBreakers(db, 30));
      for (const { state } of answer?.changes ?? []) model.count(`breaker ${state}`);
      await expectStatistics(model.db);
      if (!done) return NO_EFFECT;
      return { may: (before, after) => before?.outcome === "failed" && startsRound(before, after) };
    },
  );

const fold = steps(2, "fold statistics", always, async (model, _chosen, { fault }) => {
  await model.call(fault, (db) => foldDeltas(db));
  await expectStatistics(model.db);
  return NO_EFFECT;
});

const age = steps(1, "three hours pass for statistics", always, async ({ db }) => {
  // By way of the future: no row may take the place of another that has yet to move.
  for (const [table, column] of [
    ["deliveries", "finished"],
    ["rollup_deltas", "minute"],
    ["rollup_minutes", "start"],
    ["rollup_hours", "start"],
  ])
    await db.raw(
      `update ${table} set ${column} = ${column} + interval '1000 years';
      update ${table} set ${column} = ${column} - interval '1000 years 3 hours';`,
    );
  return NO_EFFECT;
});

/** Runs begin and end, and maintenance works. */
export const runSteps = [...close, ...abandon, ...decide(3), ...fold, ...age];

/** Circuit breakers open and close. */
export const breakerSteps = decide(8);
