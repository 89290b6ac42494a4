import { BLUE, ORANGE, type Panel } from "../parts/chart.ts";
import type { Sample } from "./simulation.ts";

const MIB = 2 ** 20;

/** The panels of the simulation. */
export const SIMULATION_PANELS: readonly Panel<Sample>[] = [
  [
    "Oldest first attempt that has not started, in seconds",
    ["failing hosts", ORANGE, (sample) => sample.oldestFailing],
    ["healthy hosts", BLUE, (sample) => sample.oldestHealthy],
  ],
  [
    "Requests in flight per worker",
    ["most", ORANGE, (sample) => sample.maxInFlight],
    ["mean", BLUE, (sample) => sample.inFlight],
  ],
  ["Attempts per second", ["all workers", BLUE, (sample) => sample.attempts]],
  ["Longest overdue retry of failing hosts, in seconds", ["", BLUE, (sample) => sample.longestOverdue]],
  ["Memory of the worker that needs the most, in MiB", ["estimate", BLUE, ({ memory }) => memory / MIB]],
];
