/** Statistics: rollups. */
export {
  deleteOldRollups,
  failedAttempts,
  foldInto,
  LATENCY_BOUNDS_MS,
  MINUTE_RETENTION_HOURS,
  takeOut,
} from "./rollups.ts";
