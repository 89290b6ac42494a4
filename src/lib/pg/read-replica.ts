import { setTimeout as wait } from "node:timers/promises";
import type { Logger } from "pino";
import { type Db, openDatabase, rows } from "./database.ts";
import { isTransient } from "./faults.ts";

/** The interval between comparisons with the primary, in milliseconds. */
const COMPARE_INTERVAL_MS = 1_000;
/** The default of the maximum lag at which the replica is read, in milliseconds. */
const MAX_LAG_MS = 10_000;
/** The maximum number of remembered WAL positions, one per COMPARE_INTERVAL_MS: enough for three times MAX_LAG_MS. */
const MAX_POSITIONS = 30;

/** Reads whose results may be outdated by the lag of a replica. */
export interface StaleReads {
  /**
   * Reads from the replica. Reads from the primary if the replica's lag is unknown or more than allowed, or if the read fails on
   * the replica: it does not answer, cancels the read for a conflict with replay, or lacks a new column, table, type or function.
   *
   * @param work runs a second time, on the primary, if the read fails on the replica
   * @returns the result, and the lag of the replica in milliseconds; null if the primary was read
   */
  read<T>(work: (db: Db) => Promise<T>): Promise<{ result: T; lagMs: number | null }>;
  /** The lag of the replica, in milliseconds. Null if the last comparison failed or none has ended; undefined without a replica. */
  lagMs(): number | null | undefined;
  close(): Promise<void>;
}

/** Whether a column, table, type or function of the statement does not exist, because the replica has not replayed a migration. */
const isUnknownObject = (error: unknown) =>
  ["42703", "42P01", "42704", "42883"].includes((error as { code?: string }).code ?? "");

/** Creates reads from the primary, for use without a replica. */
export function readPrimary(db: Db): StaleReads {
  return {
    read: async (work) => ({ result: await work(db), lagMs: null }),
    lagMs: () => undefined,
    close: async () => {},
  };
}

/**
 * Creates reads from a streaming replica. Reads the primary's WAL position once a second. The lag is the age of the oldest of these
 * positions that the replica has not replayed. PostgreSQL's own figures are not used: they show no lag while a replica is
 * disconnected, or show one while nothing is written.
 *
 * @param url the connection URL of the replica
 * @param options.poolSize the maximum number of connections to the replica
 * @param options.preparedStatements as in `openDatabase`
 * @param options.maxLagMs the maximum lag at which the replica is read, in milliseconds. Defaults to 10,000 (MAX_LAG_MS)
 */
export function readReplica(
  primary: Db,
  url: string,
  {
    poolSize,
    preparedStatements,
    log,
    maxLagMs = MAX_LAG_MS,
  }: { poolSize: number; preparedStatements: boolean; log: Logger; maxLagMs?: number },
): StaleReads {
  const replica = openDatabase(url, {
    max: poolSize,
    preparedStatements,
    applicationName: "webhook-service-reads",
    writes: false,
  });
  const stopping = new AbortController();
  /** The primary's WAL positions that the replica has not replayed, and when they were read. The oldest is first. */
  let positions: { lsn: string; at: number }[] = [];
  let isKnown = false;
  let isAway = false;

  async function compare(): Promise<void> {
    const at = performance.now();
    const [now] = await rows<{ lsn: string }>(primary, "select pg_current_wal_insert_lsn()::text as lsn");
    positions = [...positions, { lsn: now?.lsn as string, at }];
    if (positions.length > MAX_POSITIONS) positions.splice(1, positions.length - MAX_POSITIONS);
    const left = await rows<{ lsn: string }>(
      replica,
      `select lsn from unnest(:lsns::text[]) lsn
        where pg_is_in_recovery() and lsn::pg_lsn > coalesce(pg_last_wal_replay_lsn(), '0/0')`,
      { lsns: positions.map(({ lsn }) => lsn) },
    );
    const missing = new Set(left.map(({ lsn }) => lsn));
    positions = positions.filter(({ lsn }) => missing.has(lsn));
    isKnown = true;
  }

  const comparing = (async () => {
    while (!stopping.signal.aborted) {
      try {
        await compare();
        if (isAway) log.info("lists read the replica in DATABASE_READ_URL again");
        isAway = false;
      } catch (err) {
        isKnown = false;
        if (!isAway && !stopping.signal.aborted)
          log.warn(
            { err },
            "comparing the replica in DATABASE_READ_URL with its primary failed; lists read the primary",
          );
        isAway = true;
      }
      await wait(COMPARE_INTERVAL_MS, undefined, { signal: stopping.signal, ref: false }).catch(() => {});
    }
  })();

  function lagMs(): number | null {
    if (!isKnown) return null;
    const [oldest] = positions;
    return oldest ? Math.round(performance.now() - oldest.at) : 0;
  }

  return {
    lagMs,
    async read(work) {
      const lag = lagMs();
      if (lag !== null && lag <= maxLagMs) {
        try {
          return { result: await work(replica), lagMs: lag };
        } catch (error) {
          // The primary would raise this error too: the call ended or reached its limit, or the statement is wrong.
          if (!isTransient(error) && !isUnknownObject(error)) throw error;
          log.debug({ err: error }, "reading the replica failed; reading the primary");
        }
      }
      return { result: await work(primary), lagMs: null };
    },
    async close() {
      stopping.abort();
      await replica.destroy();
      await comparing;
    },
  };
}
