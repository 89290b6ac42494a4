import type { Logger } from "pino";
import { decideBreakers, MAX_DECIDED } from "../breakers/index.ts";
import type { DeliveryConfig, DispatchConfig } from "../config/index.ts";
import type { WorkerLease } from "../delivery/index.ts";
import { finishErasures } from "../events/index.ts";
import { forgetHealthy, type HealthChange } from "../health/index.ts";
import { type Db, isTransient } from "../lib/pg/index.ts";
import { systemClock } from "../lib/process/index.ts";
import { countFailed, type DeliveryInstruments } from "../metrics/index.ts";
import { accountForOverdue, cancelOfDeleted, endBeyond, endExpiredWorkers } from "../queue/index.ts";
import { takeTurn } from "../schema/index.ts";
import { FOLD_STEP, foldDeltas } from "./fold.ts";
import { findLongSnapshot } from "./snapshots.ts";
import { vacuumQueue } from "./vacuum.ts";

/** The pause between two rounds, in milliseconds. */
const PAUSE_BETWEEN_ROUNDS_MS = 1_000;
/** The interval between warnings about long snapshots, over all processes, in seconds. */
const WARN_EVERY_S = 600;
/** The maximum number of deliveries above a webhook's limit that one statement fails. */
const MAX_FAILED_PER_STATEMENT = 1_000;

/** The interval between counts of overdue retries, over all processes, in seconds. */
const OVERDUE_EVERY_S = 60;
/** The interval between vacuums of the queue, over all processes, in seconds. */
const VACUUM_EVERY_S = 15;

/**
 * Starts the maintenance, which once a second releases the claims of workers with an expired lease, cancels open
 * deliveries of deleted webhooks and erased events, fails deliveries above a webhook's limit, folds statistics, judges the health of
 * webhooks, decides on circuit breakers and vacuums the queue. Safe to run in any number of processes at once.
 *
 * @param parts.dispatch breakers send no deliveries again that are older than its retention
 * @param parts.works told what the thread works on. Defaults to nothing
 * @param parts.longSnapshotS the age of a snapshot, in seconds, from which the log warns of it; as `findLongSnapshot` has it
 * @returns stops it
 */
export function startMaintenance(parts: {
  db: Db;
  lease: Pick<WorkerLease, "ids" | "mayEndOthers">;
  log: Logger;
  instruments: DeliveryInstruments;
  delivery: Pick<DeliveryConfig, "maxPendingPerWebhook">;
  dispatch: Pick<DispatchConfig, "retentionDays">;
  longSnapshotS?: number;
  works?: (on: string) => void;
}): () => Promise<void> {
  const { db, lease, log, instruments } = parts;
  const maxPending = parts.delivery.maxPendingPerWebhook;
  const end = new AbortController();
  /** Each job, and the number of rounds from one time to the next. */
  const jobs: readonly [everyRounds: number, job: () => Promise<unknown>][] = [
    [60, warnOfLongSnapshot],
    [1, endWorkers],
    [1, () => whileFull(1, () => cancelOfDeleted(db))],
    [1, failBeyondLimit],
    [1, () => whileFull(FOLD_STEP, () => foldDeltas(db, logHealth))],
    [1, () => whileFull(MAX_DECIDED, operateBreakers)],
    [15, () => forgetHealthy(db)],
    [10, logOverdue],
    [5, vacuum],
    // Last: a response that cannot be erased must not hold up the rest.
    [1, () => finishErasures(db)],
  ];

  /** Repeats a step that handles at most `most` rows: one that was not full has left only what came meanwhile. Returns their number. */
  async function whileFull(most: number, step: () => Promise<number>): Promise<number> {
    let rows = 0;
    for (let done = most; done >= most && !end.signal.aborted; rows += done) done = await step();
    return rows;
  }

  /** Dead rows of the queue cannot be vacuumed while a snapshot may see them, and each claim scans them. */
  async function warnOfLongSnapshot(): Promise<void> {
    const snapshot = await findLongSnapshot(db, parts.longSnapshotS);
    if (!snapshot || !(await takeTurn(db, "long snapshot warned of", WARN_EVERY_S))) return;
    log.warn(
      { snapshot },
      "long-running transaction slows deliveries down; commit it, or end its session with: select pg_terminate_backend(pid)",
    );
  }

  async function endWorkers(): Promise<void> {
    const workers = lease.mayEndOthers() ? await endExpiredWorkers(db, lease.ids) : [];
    if (workers.length === 0) return;
    instruments.leasesExpired.add(workers.length, { holder: "worker" });
    log.warn({ workers }, "ended workers whose lease had expired; their deliveries are free");
  }

  async function failBeyondLimit(): Promise<void> {
    if (maxPending === 0) return;
    const most = MAX_FAILED_PER_STATEMENT;
    const failed = await whileFull(most, () => endBeyond(db, maxPending, most));
    if (failed === 0) return;
    countFailed(instruments.failed, failed, "queue_full");
    log.warn(
      { deliveries: failed, maxPending },
      "pending deliveries above MAX_PENDING_PER_WEBHOOK failed; resend them once the endpoint keeps up",
    );
  }

  /** The process that stored a change logs it, so that of all processes one does. */
  function logHealth(changes: readonly HealthChange[]): void {
    for (const change of changes) {
      const { was, health, since } = change;
      if ((was === "failing") === (health === "failing")) continue;
      if (health === "failing") log.info({ ...named(change), since }, "webhook is failing");
      else log.info({ ...named(change), health }, "webhook has recovered");
    }
  }

  async function operateBreakers(): Promise<number> {
    const { changes, decided } = await decideBreakers(db, parts.dispatch.retentionDays, maxPending);
    for (const change of changes) {
      const { state, reason } = change;
      instruments.breakerChanges.add(1, { state });
      if (state === "closed") log.info(named(change), "circuit breaker closed");
      else if (state === "open") log.info({ ...named(change), reason }, "circuit breaker opened");
      else log.warn({ ...named(change), reason }, "webhook disabled by its circuit breaker");
    }
    return decided;
  }

  /** A count reads all waiting retries, so that of all processes one makes it. */
  async function logOverdue(): Promise<void> {
    if (!(await takeTurn(db, "overdue retries logged", OVERDUE_EVERY_S))) return;
    const overdue = await accountForOverdue(db);
    if (!overdue) return;
    const { count: retries, oldestDue, webhooks, hosts } = overdue;
    const oldestSeconds = Math.round((Date.now() - oldestDue.getTime()) / 1_000);
    log.info({ retries, oldestSeconds, webhooks, hosts }, "retries are overdue");
  }

  async function vacuum(): Promise<void> {
    if (await takeTurn(db, "queue vacuumed", VACUUM_EVERY_S)) await vacuumQueue(db);
  }

  async function run(): Promise<void> {
    for (let rounds = 0; !end.signal.aborted; rounds += 1) {
      try {
        for (const [everyRounds, job] of jobs) {
          if (rounds % everyRounds !== 0) continue;
          parts.works?.("maintenance");
          await job();
        }
      } catch (err) {
        // While the database is unavailable, other parts log it.
        if (!isTransient(err) && !end.signal.aborted) log.error({ err }, "maintenance failed; retrying");
      }
      await systemClock.wait(PAUSE_BETWEEN_ROUNDS_MS, { signal: end.signal, ref: false });
    }
  }

  const running = run();
  return () => {
    end.abort();
    return running;
  };
}

/** A webhook in a log line. */
const named = ({ webhookId, targetUrl }: { webhookId: bigint; targetUrl: string }) => ({
  webhookId: String(webhookId),
  host: new URL(targetUrl).host,
});
