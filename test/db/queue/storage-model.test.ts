import fc from "fast-check";
import { expect, test } from "vitest";
import { FULL_SIZE, tell } from "../../faults/scale.ts";
import { empty, useDatabase } from "../../support/database.ts";
import { attemptSteps, deliverSteps, endHistory, firstClaimSteps } from "./model/attempt-steps.ts";
import { endingSteps } from "./model/ending-steps.ts";
import { eventSteps } from "./model/event-steps.ts";
import { StorageModel } from "./model/model.ts";
import { replaySteps } from "./model/replay-steps.ts";
import { breakerSteps, runSteps } from "./model/run-steps.ts";
import type { Step } from "./model/step.ts";
import { breakerSettingSteps, filterSteps, webhookSteps } from "./model/webhook-steps.ts";
import { filterOutSteps, workerSteps } from "./model/worker-steps.ts";

/** Histories: `MODEL_HISTORIES`, or as many as `MODEL_SECONDS` allow. At full size, those of an hour. */
const SECONDS = process.env.MODEL_SECONDS ?? (FULL_SIZE ? "3600" : undefined);
const HISTORIES = Number(
  process.env.MODEL_HISTORIES ?? (SECONDS === undefined ? 20 : Number.POSITIVE_INFINITY),
);
/** Of the first history; each further one has the next. Other ones each time: that of a failing history repeats it. */
const SEED = Number(process.env.MODEL_SEED ?? Math.floor(Math.random() * 2 ** 30));
const STEPS = 240;
/** Histories from which all of these must have happened. */
const MANY_HISTORIES = 500;
const HAPPENS = [
  ["delivered", "retries", "filter not matched"].map((to) => `queue → ${to}`),
  ["queue full", "payload erased", "interrupted", "expired"].map((to) => `queue → ${to}`),
  ["delivered", "failed", "payload erased", "webhook deleted"].map((to) => `retries → ${to}`),
  ["delivered", "failed", "filter not matched"].map((from) => `${from} → queue`),
  ["open", "closed", "disabled"].map((state) => `breaker ${state}`),
  ["queue → webhook deleted", "probe claimed", "resend completed", "backfill completed"],
].flat();
/** How long a failing history is made shorter, in milliseconds. */
const SHORTENING_MS = 60_000;
/** Histories between two lines of progress. */
const PROGRESS = 100;

const MAINLY: Record<string, readonly fc.Arbitrary<Step>[]> = {
  everything: [],
  failures: [...deliverSteps, ...deliverSteps],
  filters: [...filterSteps, ...filterOutSteps, ...firstClaimSteps],
  "circuit breakers": [...breakerSteps, ...breakerSettingSteps, ...deliverSteps],
  "filters and circuit breakers": [...breakerSteps, ...filterSteps, ...filterOutSteps, ...firstClaimSteps],
  replays: [...replaySteps, ...replaySteps],
};
const STEPS_OF_ALL = [
  webhookSteps,
  eventSteps,
  attemptSteps,
  workerSteps,
  endingSteps,
  runSteps,
  replaySteps,
].flat();
/** Histories of every kind of step, some kinds more often. */
const histories = fc.oneof(
  ...Object.values(MAINLY).map((more) =>
    fc.commands([...STEPS_OF_ALL, ...more], { maxCommands: STEPS, size: "max" }),
  ),
);

const db = await useDatabase();

/** What all histories have done. */
const done = { histories: 0, steps: 0, counts: new Map<string, number>() };

async function runHistory(steps: Iterable<Step>): Promise<void> {
  await empty(db);
  const model = new StorageModel(db);
  try {
    await model.start();
    await fc.asyncModelRun(() => ({ model, real: db }), steps);
    await endHistory(model);
  } catch (error) {
    throw new Error(`${(error as Error).message}\n\nThe history:\n${model.log.join("\n")}`, { cause: error });
  }
  done.histories += 1;
  done.steps += model.steps;
  for (const [what, times] of model.counts) done.counts.set(what, (done.counts.get(what) ?? 0) + times);
}

/** Runs the history of a seed. @throws Error with the shortest history found that fails */
async function check(seed: number): Promise<void> {
  const { failed, errorInstance, numShrinks } = await fc.check(fc.asyncProperty(histories, runHistory), {
    seed,
    numRuns: 1,
    unbiased: true,
    interruptAfterTimeLimit: SHORTENING_MS,
  });
  if (!failed) return;
  const repeat = `MODEL_SEED=${seed} MODEL_HISTORIES=1 npx vitest run storage-model`;
  const { message, cause } = errorInstance as Error;
  throw new Error(`a history fails; to repeat it: ${repeat}\nMade shorter ${numShrinks} times: ${message}`, {
    cause,
  });
}

const report = (next: number) =>
  tell(`${done.histories} histories, ${done.steps} steps, next MODEL_SEED=${next}`);

test("whatever happens in whatever order, no delivery is lost, doubled or sent by two workers, and every count is right", async () => {
  const isOver = SECONDS === undefined ? null : AbortSignal.timeout(Number(SECONDS) * 1_000);
  let seed = SEED;
  for (; seed < SEED + HISTORIES && !isOver?.aborted; seed += 1) {
    await check(seed);
    if (done.histories % PROGRESS === 0) report(seed + 1);
  }
  report(seed);
  for (const [what, times] of [...done.counts].sort()) tell(`  ${what}: ${times}`);
  if (done.histories < MANY_HISTORIES) return;
  expect(
    HAPPENS.filter((what) => !done.counts.has(what)),
    "never happened",
  ).toEqual([]);
});
