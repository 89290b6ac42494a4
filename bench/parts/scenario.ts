import type { Bench } from "./bench.ts";

/** One figure of one repeat. */
export interface Measurement {
  /** The name of the figure within the scenario, such as `memory`; empty for the main figure. */
  detail: string;
  unit: string;
  value: number;
  /** The count of the figure, if different from the scenario's. */
  count?: number;
  /** A note about the result, such as the best concurrency. */
  note?: string;
}

/** A target for a figure. */
export interface Target {
  atLeast?: number;
  atMost?: number;
}

/** A figure computed from two scenarios' main figures of the same repeat. */
export interface Comparison {
  detail: string;
  unit: string;
  /** The scenario compared with, which is always measured in the same run. */
  with: string;
  value(own: number, other: number): number;
}

/** A scenario to measure. */
export interface Scenario {
  name: string;
  /** A one-line description for the list of scenarios. */
  what: string;
  /** The count at full size and in `NAME-small`. */
  count: { full: number; small: number };
  /** Targets by detail; empty for the main figure. */
  targets: Record<string, Target>;
  comparisons: readonly Comparison[];
  /** Measures one repeat. Stops everything it started. */
  measure(bench: Bench, count: number): Promise<Measurement[]>;
}
