import type { Bench } from "./bench.ts";

/** One figure of one repeat. */
export interface Measurement {
  /** What it is beside the scenario's main figure, such as `memory`; empty for that one. */
  detail: string;
  unit: string;
  value: number;
  /** How many of what it is about, where that is not the scenario's own count. */
  count?: number;
  /** What came of it only in words, such as the concurrency that was best. */
  note?: string;
}

/** A figure that must be reached. */
export interface Target {
  atLeast?: number;
  atMost?: number;
}

/** A figure made of two scenarios' main figures of the same repeat. */
export interface Comparison {
  detail: string;
  unit: string;
  /** The scenario it is compared with, which is measured in the same run whether asked for or not. */
  with: string;
  value(own: number, other: number): number;
}

/** Something to be measured. */
export interface Scenario {
  name: string;
  /** One line, for the list of scenarios. */
  what: string;
  /** How many of what it is about, at full size and in `NAME-small`. */
  count: { full: number; small: number };
  /** By detail; the main figure's under the empty one. */
  targets: Record<string, Target>;
  comparisons: readonly Comparison[];
  /** One repeat. Ends all it started. */
  measure(bench: Bench, count: number): Promise<Measurement[]>;
}
