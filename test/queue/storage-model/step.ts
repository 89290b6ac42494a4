import fc from "fast-check";
import type { Db } from "../../../src/lib/pg/database.ts";
import type { Fault } from "./faults.ts";
import type { Effect, StorageModel } from "./model.ts";

export type Step = fc.AsyncCommand<StorageModel, Db, boolean>;

/** What differs between steps of one kind: numbers to choose by, and how a call fails. */
export interface Chance {
  n: number;
  m: number;
  fault: Fault;
}

const number = fc.nat({ max: 1_000 });

/** Two in three calls do not fail. */
const fault: fc.Arbitrary<Fault> = fc.oneof(
  { weight: 4, arbitrary: fc.constant(null) },
  { weight: 1, arbitrary: fc.constant("answer lost" as const) },
  { weight: 1, arbitrary: fc.nat({ max: 6 }) },
);

/**
 * Steps of one kind.
 *
 * @param times how often they are taken, relative to steps of other kinds
 * @param name what is done, for the log of a failing history
 * @param choose what it is done to; undefined if there is nothing, then the step is left out
 * @param run does it; what it may do to deliveries is checked after it
 */
export function steps<T>(
  times: number,
  name: string | ((chance: Chance) => string),
  choose: (model: StorageModel, chance: Chance) => T | undefined,
  run: (model: StorageModel, chosen: T, chance: Chance) => Promise<Effect>,
): fc.Arbitrary<Step>[] {
  const arbitrary = fc.record({ n: number, m: number, fault }).map(
    (chance): Step => ({
      check: (model) => choose(model as StorageModel, chance) !== undefined,
      async run(model) {
        model.steps += 1;
        model.log.push(typeof name === "string" ? name : name(chance));
        await model.check(await run(model, choose(model, chance) as T, chance));
        await model.removeRetired();
      },
    }),
  );
  return Array(times).fill(arbitrary);
}

/** Always something. */
export const always = (): true => true;

/** The n-th of a list, or of some of it, over and over; undefined if there is none. */
export function pick<T>(from: readonly T[], n: number, isOne: (one: T) => boolean = always): T | undefined {
  const some = from.filter(isOne);
  return some[n % Math.max(1, some.length)];
}
