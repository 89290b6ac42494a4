import { type Db, rows } from "../lib/pg/index.ts";

/**
 * PostgreSQL's advisory locks of the service. Arbitrary numbers, the same in every process and version, and all here so
 * that each has its own.
 */
export const ADVISORY_LOCKS = {
  /** Held while the schema is migrated. */
  migration: 7_242_110_918,
  /** Counting, creating and moving webhooks. */
  registration: 7_242_110_919,
  /** Counting and creating API keys. */
  keys: 7_242_110_920,
  /** Counting and creating installed apps. */
  apps: 7_242_110_921,
  /** Changes of partitions. */
  partitions: 7_242_110_922,
  /** Held while statistics are folded. */
  fold: 7_242_110_923,
  /** Held for its whole session by the process that reads the backlog for metrics. */
  backlog: 7_242_110_924,
  /** Counting and starting replays. */
  replays: 7_242_110_925,
  /** Shared while an instance is added or renewed; exclusive while a feature is required. */
  features: 7_242_110_926,
  /** Changing the catalogue of event types. */
  eventTypes: 7_242_110_927,
} as const;

/** Waits for a lock, and holds it until the end of the transaction. */
export async function takeLock(trx: Db, name: keyof typeof ADVISORY_LOCKS): Promise<void> {
  await rows(trx, "select pg_advisory_xact_lock(:lock::bigint)", { lock: ADVISORY_LOCKS[name] });
}
