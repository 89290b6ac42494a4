import fc from "fast-check";
import type { Db } from "../../../../src/db/database.ts";
import type { Fault } from "./faults.ts";
import type { Effect, StorageModel } from "./model.ts";

export type Step = fc.AsyncCommand<StorageModel, Db, boolean>;

/**
 * A step of a history.
 *
 * @param name what is done, for the log of a failing history
 * @param choose what it is done to; undefined if there is nothing, then the step is left out
 * @param run does it; what it may do to deliveries is checked after it
 */
export function step<T>(
  name: string,
  choose: (model: StorageModel) => T | undefined,
  run: (model: StorageModel, on: Db, chosen: T) => Promise<Effect>,
): Step {
  return {
    check: (model) => choose(model as StorageModel) !== undefined,
    async run(model, on) {
      model.steps += 1;
      model.log.push(name);
      await model.check(await run(model, on, choose(model) as T));
      await model.removeRetired();
    },
    toString: () => name,
  };
}

/** Always something. */
export const always = (): true => true;

/** The n-th of a list, over and over; undefined of an empty one. */
export const pick = <T>(from: readonly T[], n: number): T | undefined => from[n % Math.max(1, from.length)];

export const number = fc.nat({ max: 1_000 });

/** Two in three calls do not fail. */
export const fault: fc.Arbitrary<Fault> = fc.oneof(
  { weight: 4, arbitrary: fc.constant(null) },
  { weight: 1, arbitrary: fc.constant("answer lost" as const) },
  { weight: 1, arbitrary: fc.nat({ max: 6 }) },
);

/** Added to the name of a step. */
export function inWords(fault: Fault): string {
  if (fault === null) return "";
  return typeof fault === "number" ? `, and statement ${fault} is not run` : ", and the answer is lost";
}

/** A step that is taken more often than others. */
export const often = (times: number, arbitrary: fc.Arbitrary<Step>): fc.Arbitrary<Step>[] =>
  Array.from({ length: times }, () => arbitrary);
