/** The schema: migrations, partitions, instances with what they know of it, and settings stored in the database. */
export { ADVISORY_LOCKS, takeLock } from "./advisory-locks.ts";
export {
  addInstance,
  FeatureUnknownError,
  removeInstance,
  renewInstance,
  requireFeature,
} from "./instances.ts";
export { MIGRATION_BLOCKED, migrate } from "./migrate.ts";
export {
  ensurePartitions,
  firstIdOf,
  type IdRange,
  idRangeOf,
  isInRangeOf,
  lastIdOf,
  listPartitions,
  NIL_ID,
  PARTITIONED,
  type Partition,
  type Partitioned,
  timeOfId,
  withPartitions,
} from "./partitions.ts";
export { replaceSetting, setNextTurn, settingOrNew, storeSetting, takeTurn } from "./settings.ts";
export { aliased } from "./tables.ts";
