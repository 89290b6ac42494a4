import { setTimeout as wait } from "node:timers/promises";
import type { Logger } from "pino";
import { findLongSnapshot } from "../db/connections/snapshots.ts";
import type { Db } from "../db/database.ts";
import { FOLD_STEP, foldDeltas } from "../db/deliveries/rollups.ts";
import { isTransient } from "../db/faults.ts";
import { endBeyond } from "../db/queue/endings.ts";
import { endExpiredWorkers } from "../db/queue/workers.ts";
import { cancelOfDeleted } from "../db/webhooks/webhooks.ts";
import type { WorkerLease } from "./worker-lease.ts";

/** The pause between two rounds, in milliseconds. */
const PAUSE_BETWEEN_ROUNDS_MS = 1_000;
/** The number of rounds between checks for long snapshots. */
const ROUNDS_PER_SNAPSHOT_CHECK = 60;
/** The number of rounds after which the warning about a snapshot is repeated. */
const ROUNDS_PER_WARNING = 600;
/** The maximum number of deliveries above a webhook's limit that one statement fails. */
const MAX_FAILED_PER_STATEMENT = 1_000;

/** Background maintenance in every process that delivers. */
export interface Maintenance {
  /** Starts the maintenance loop. Later calls have no effect. */
  start(): void;
  close(): Promise<void>;
}

/**
 * Once a second: releases the claims of workers with an expired lease, cancels pending deliveries of deleted
 * webhooks, fails deliveries above a webhook's limit, and folds statistics. Safe to run in any number of processes at
 * once.
 *
 * @param maxPending the maximum number of pending deliveries per webhook; 0 for no limit
 */
export function createMaintenance(db: Db, lease: WorkerLease, log: Logger, maxPending: number): Maintenance {
  const end = new AbortController();
  let running: Promise<void> | undefined;

  let rounds = 0;
  let warnedUntil = 0;

  /** Dead rows of the queue cannot be vacuumed while a snapshot may see them, and each claim scans them. */
  async function warnOfLongSnapshot(): Promise<void> {
    rounds += 1;
    if (rounds % ROUNDS_PER_SNAPSHOT_CHECK !== 0 || rounds < warnedUntil) return;
    const snapshot = await findLongSnapshot(db);
    if (!snapshot) return;
    warnedUntil = rounds + ROUNDS_PER_WARNING;
    log.warn(
      { snapshot },
      "long-running transaction slows deliveries down; commit it, or end its session with: select pg_terminate_backend(pid)",
    );
  }

  async function failBeyondLimit(): Promise<void> {
    if (maxPending === 0) return;
    let failed = 0;
    for (
      let step = MAX_FAILED_PER_STATEMENT;
      step === MAX_FAILED_PER_STATEMENT && !end.signal.aborted;
      failed += step
    )
      step = await endBeyond(db, maxPending, MAX_FAILED_PER_STATEMENT);
    if (failed > 0)
      log.warn(
        { deliveries: failed, maxPending },
        "pending deliveries above MAX_PENDING_PER_WEBHOOK failed; resend them once the endpoint keeps up",
      );
  }

  async function round(): Promise<void> {
    await warnOfLongSnapshot();
    const workers = await endExpiredWorkers(db, lease.ids);
    if (workers.length > 0) log.warn({ workers }, "worker leases expired; claims released");
    while (!end.signal.aborted && (await cancelOfDeleted(db)) > 0);
    await failBeyondLimit();
    // A partial step processed everything except rows added in the meantime.
    while (!end.signal.aborted && (await foldDeltas(db)) >= FOLD_STEP);
  }

  async function run(): Promise<void> {
    while (!end.signal.aborted) {
      try {
        await round();
      } catch (err) {
        // While the database is unavailable, other parts log it.
        if (!isTransient(err) && !end.signal.aborted) log.error({ err }, "maintenance failed; retrying");
      }
      await wait(PAUSE_BETWEEN_ROUNDS_MS, undefined, { signal: end.signal, ref: false }).catch(() => {});
    }
  }

  return {
    start() {
      running ??= run();
    },
    async close() {
      end.abort();
      await running;
    },
  };
}
