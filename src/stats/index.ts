/** Statistics: rollups, and counts of customers. */
export { countOfCustomers } from "./customer-counts.ts";
export {
  deleteOldRollups,
  failedAttempts,
  foldInto,
  LATENCY_BOUNDS_MS,
  MINUTE_RETENTION_HOURS,
  takeOut,
} from "./rollups.ts";
export { countFailing } from "./stats.ts";
