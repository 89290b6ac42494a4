import { mkdir, writeFile } from "node:fs/promises";
import path from "node:path";
import type { Measurement, Target } from "./scenario.ts";

/** A figure over all repeats, as stored in `bench/results/`. */
export interface Result {
  /** The scenario and, except for its main figure, the detail: `backlog memory`. */
  name: string;
  unit: string;
  min: number;
  median: number;
  max: number;
  /** The scenario's count, for example of deliveries. */
  count: number;
  /** The target, such as `>= 0.5` or `<= 400`, if there is one. */
  target?: string;
  /** Whether the median reaches the target. */
  reached?: boolean;
  /** Notes of the repeats, such as the best concurrency. */
  notes?: string[];
}

/** Collects the figures of a run by repeat. */
export class Figures {
  readonly #figures = new Map<
    string,
    { unit: string; count: number; target: Target | undefined; values: number[]; notes: string[] }
  >();

  /** @param scenario its name, with the suffix `-small` if applicable */
  add(scenario: string, count: number, target: Target | undefined, measured: Measurement): void {
    const name = measured.detail === "" ? scenario : `${scenario} ${measured.detail}`;
    const figure = this.#figures.get(name) ?? {
      unit: measured.unit,
      count: measured.count ?? count,
      target,
      values: [],
      notes: [],
    };
    figure.values.push(measured.value);
    if (measured.note !== undefined) figure.notes.push(measured.note);
    this.#figures.set(name, figure);
  }

  results(): Result[] {
    return [...this.#figures].map(([name, { unit, count, target, values, notes }]) => {
      const sorted = values.toSorted((one, other) => one - other);
      const middle = median(sorted);
      return {
        name,
        unit,
        min: rounded(sorted[0] as number),
        median: rounded(middle),
        max: rounded(sorted.at(-1) as number),
        count,
        ...(target === undefined ? {} : { target: inWords(target), reached: reaches(middle, target) }),
        ...(notes.length === 0 ? {} : { notes }),
      };
    });
  }
}

/** Writes the results to the location expected by tools. Returns the path. */
export async function writeResults(
  results: readonly Result[],
  folder: string,
  name = "latest.json",
): Promise<string> {
  await mkdir(folder, { recursive: true });
  const file = path.join(folder, name);
  await writeFile(file, `${JSON.stringify(results, null, 2)}\n`);
  return file;
}

function median(sorted: readonly number[]): number {
  const half = sorted.length / 2;
  const upper = sorted[Math.floor(half)] as number;
  return Number.isInteger(half) ? ((sorted[half - 1] as number) + upper) / 2 : upper;
}

/** Rounds to four digits, the precision of three repeats. */
function rounded(value: number): number {
  return Math.abs(value) >= 1_000 ? Math.round(value) : Number(value.toPrecision(4));
}

function inWords({ atLeast, atMost }: Target): string {
  return atLeast === undefined ? `<= ${atMost}` : `>= ${atLeast}`;
}

function reaches(value: number, { atLeast, atMost }: Target): boolean {
  return value >= (atLeast ?? Number.NEGATIVE_INFINITY) && value <= (atMost ?? Number.POSITIVE_INFINITY);
}
