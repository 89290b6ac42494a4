import fc from "fast-check";
import { expect, test } from "vitest";
import type { Db } from "../../../src/lib/pg/database.ts";
import { FULL_SIZE, tell } from "../../faults/scale.ts";
import { empty, useDatabase } from "../../support/database.ts";
import { attemptSteps, endHistory } from "./attempt-steps.ts";
import { endingSteps } from "./ending-steps.ts";
import { eventSteps } from "./event-steps.ts";
import { StorageModel } from "./model.ts";
import { replaySteps } from "./replay-steps.ts";
import { runSteps } from "./run-steps.ts";
import type { Step } from "./step.ts";
import { webhookSteps } from "./webhook-steps.ts";
import { workerSteps } from "./worker-steps.ts";

/** Histories of each file: `MODEL_HISTORIES`, or as many as `MODEL_SECONDS` allow. At full size, six minutes: the ten files take an hour. */
const SECONDS = process.env.MODEL_SECONDS ?? (FULL_SIZE ? "360" : undefined);
const HISTORIES = Number(
  process.env.MODEL_HISTORIES ?? (SECONDS === undefined ? 2 : Number.POSITIVE_INFINITY),
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

type Steps = readonly fc.Arbitrary<Step>[];

const STEPS_OF_ALL = [
  webhookSteps,
  eventSteps,
  attemptSteps,
  workerSteps,
  endingSteps,
  runSteps,
  replaySteps,
].flat();
/** Histories of all kinds of steps, of which the given ones are more frequent. */
const histories = (more: readonly Steps[]) =>
  fc.commands([...STEPS_OF_ALL, ...more.flat()], { maxCommands: STEPS, size: "max" });

/** What the histories of a file have done. */
interface Done {
  histories: number;
  steps: number;
  counts: Map<string, number>;
}

async function runHistory(db: Db, steps: Iterable<Step>, done: Done): Promise<void> {
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

/** Defines the test of a file: generated histories, of which the given steps are a larger part. @param file its name */
export async function testHistories(file: string, ...more: Steps[]): Promise<void> {
  const db = await useDatabase();
  const done: Done = { histories: 0, steps: 0, counts: new Map() };
  const report = (next: number) =>
    tell(`${file}: ${done.histories} histories, ${done.steps} steps, next MODEL_SEED=${next}`);

  /** Runs the history of a seed. @throws Error with the shortest history found that fails */
  async function check(seed: number): Promise<void> {
    const property = fc.asyncProperty(histories(more), (steps) => runHistory(db, steps, done));
    const { failed, errorInstance, numShrinks } = await fc.check(property, {
      seed,
      numRuns: 1,
      unbiased: true,
      interruptAfterTimeLimit: SHORTENING_MS,
    });
    if (!failed) return;
    const repeat = `MODEL_SEED=${seed} MODEL_HISTORIES=1 npx vitest run storage-model/${file}`;
    const { message, cause } = errorInstance as Error;
    throw new Error(
      `a history fails; to repeat it: ${repeat}\nMade shorter ${numShrinks} times: ${message}`,
      {
        cause,
      },
    );
  }

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
}
