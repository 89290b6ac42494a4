/** Statistics: rollups, and counts of what fails. */

export {
  deleteOldRollups,
  failedAttempts,
  foldInto,
  LATENCY_BOUNDS_MS,
  MINUTE_RETENTION_HOURS,
  takeOut,
} from "./rollups.ts";
export { countFailing } from "./stats.ts";
