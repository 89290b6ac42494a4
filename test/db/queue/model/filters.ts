import pino from "pino";
import { Filters } from "../../../../src/delivery/request/filters.ts";
import { systemClock } from "../../../../src/process/clock.ts";

/** Users that events belong to. */
export const USERS = ["a", "b", "c"] as const;

/** A filter of a webhook, and what it matches. */
export interface ModelFilter {
  expression: string;
  matches(userId: string): boolean;
}

/** Filters that fit events of every type. */
export const FILTERS: readonly ModelFilter[] = [
  { expression: "user_id == 'a'", matches: (userId) => userId === "a" },
  { expression: "user_id != 'a'", matches: (userId) => userId !== "a" },
  { expression: "false", matches: () => false },
];

/** Evaluates filters as a worker does. */
export const workerFilters = new Filters(systemClock, pino({ level: "silent" }));
