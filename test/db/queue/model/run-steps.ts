import fc from "fast-check";
import { expect } from "vitest";
import { decideBreakers } from "../../../../src/db/circuit-breaker/decide.ts";
import { type Db, rows } from "../../../../src/db/database.ts";
import { foldDeltas } from "../../../../src/db/deliveries/rollups.ts";
import { abandonRun, closeExpiredRuns, closeRun } from "../../../../src/db/queue/runs.ts";
import { startsRound } from "./ending-steps.ts";
import { call } from "./faults.ts";
import { expectStatistics } from "./invariants.ts";
import { NO_EFFECT, type StorageModel } from "./model.ts";
import { always, fault, inWords, number, often, type Step, step } from "./step.ts";

async function retriesOfRun({ db, runId }: StorageModel): Promise<number> {
  const [found] = await rows<{ n: number }>(
    db,
    "select count(*)::int as n from retries where run_id = :runId::int",
    { runId },
  );
  return found?.n ?? 0;
}

const isClosed = async ({ db, runId }: StorageModel) =>
  (await db("runs").where({ id: runId }).whereNull("closed").pluck("id")).length === 0;

const close = fc.constant(
  step("close the run, unless it has retries, and open another", always, async (model, on) => {
    const open = await retriesOfRun(model);
    expect(await closeRun(on, model.runId)).toMatchObject({ open, putBack: 0 });
    expect(await isClosed(model)).toBe(open === 0);
    if (open === 0) await model.openRun();
    return NO_EFFECT;
  }),
);

const abandon = fc.record({ n: number, isExpired: fc.boolean(), fault }).map(({ n, isExpired, fault }) =>
  step(
    `${isExpired ? "the lease of the run expires" : "abandon the run"}, and open another${inWords(fault)}`,
    () => (n % 3 > 0 ? undefined : true),
    async (model, on) => {
      const { runId } = model;
      const putBack = await retriesOfRun(model);
      const end = (db: Db): Promise<unknown> => (isExpired ? closeExpiredRuns(db) : abandonRun(db, runId));
      expect(await closeExpiredRuns(on), "runs whose lease holds are closed").toBe(0);
      if (isExpired) await on.raw("update runs set lease_until = now() where id = ?", [runId]);
      const heard = await call(on, fault, end);
      if (heard) expect(heard.answer).toEqual(isExpired ? 1 : expect.objectContaining({ open: 0, putBack }));
      else await end(on);
      expect([await isClosed(model), await retriesOfRun(model)]).toEqual([true, 0]);
      await model.openRun();
      return NO_EFFECT;
    },
  ),
);

const decide = fault.map((fault) =>
  step(
    `ten minutes pass for circuit breakers, and decide on them${inWords(fault)}`,
    always,
    async (model, on) => {
      await foldDeltas(on);
      await on.raw(
        `update webhook_breakers set failing_since = failing_since - interval '10 minutes',
        next_probe = next_probe - interval '10 minutes', due = now()`,
      );
      const heard = await call(on, fault, (db) => decideBreakers(db, 30));
      for (const { state } of heard?.answer.changes ?? []) model.count(`breaker ${state}`);
      await expectStatistics(model.db);
      if (!heard && fault !== "answer lost") return NO_EFFECT;
      return { may: (before, after) => before?.outcome === "failed" && startsRound(before, after) };
    },
  ),
);

const fold = fault.map((fault) =>
  step(`fold statistics${inWords(fault)}`, always, async (model, on) => {
    await call(on, fault, (db) => foldDeltas(db));
    await expectStatistics(model.db);
    return NO_EFFECT;
  }),
);

const age = fc.constant(
  step("three hours pass for statistics", always, async (_model, on) => {
    const aged = (table: string, column: string) =>
      // By way of the future: no row may take the place of another that has yet to move.
      `update ${table} set ${column} = ${column} + interval '1000 years';
      update ${table} set ${column} = ${column} - interval '1000 years 3 hours';`;
    await on.raw(
      [
        aged("deliveries", "finished"),
        aged("rollup_deltas", "minute"),
        aged("rollup_minutes", "start"),
        aged("rollup_hours", "start"),
      ].join(""),
    );
    return NO_EFFECT;
  }),
);

/** Runs begin and end, and maintenance works. */
export const runSteps: fc.Arbitrary<Step>[] = [close, abandon, ...often(3, decide), ...often(2, fold), age];

/** Circuit breakers open and close. */
export const breakerSteps: fc.Arbitrary<Step>[] = often(8, decide);
