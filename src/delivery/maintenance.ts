import { setTimeout as wait } from "node:timers/promises";
import type { Logger } from "pino";
import { decideBreakers, MAX_DECIDED } from "../db/circuit-breaker/decide.ts";
import { findLongSnapshot } from "../db/connections/snapshots.ts";
import { vacuumQueue } from "../db/connections/vacuum.ts";
import type { Db } from "../db/database.ts";
import { FOLD_STEP, foldDeltas } from "../db/deliveries/rollups.ts";
import { finishErasures } from "../db/events/erase.ts";
import { isTransient } from "../db/faults.ts";
import { endBeyond } from "../db/queue/endings.ts";
import { endExpiredWorkers } from "../db/queue/workers.ts";
import { takeTurn } from "../db/settings.ts";
import { accountForOverdue } from "../db/webhooks/overdue-retries.ts";
import { forgetHealthy, type HealthChange } from "../db/webhooks/webhook-health.ts";
import { cancelOfDeleted } from "../db/webhooks/webhooks.ts";
import { countFailed, type DeliveryInstruments } from "../metrics/instruments.ts";
import type { WorkerLease } from "./claims/worker-lease.ts";

/**
 * The pause between two rounds: a multiple of the last one's duration within these limits, in milliseconds. Statistics of many webhooks
 * cost least where many changes are folded at once.
 */
const PAUSE = { factor: 9, minMs: 1_000, maxMs: 5_000 };
/** The interval between warnings about long snapshots, over all processes, in seconds. */
const WARN_EVERY_S = 600;
/** The maximum number of deliveries above a webhook's limit that one statement fails. */
const MAX_FAILED_PER_STATEMENT = 1_000;

/** The interval between counts of overdue retries, over all processes, in seconds. */
const OVERDUE_EVERY_S = 60;
/** The interval between vacuums of the queue, over all processes, in seconds. */
const VACUUM_EVERY_S = 15;
/** The maximum number of log lines about webhooks that start failing or recover, per step of folding. */
const MAX_HEALTH_LINES = 50;

/**
 * Starts the maintenance, which every one to five seconds releases the claims of workers with an expired lease, cancels open
 * deliveries of deleted webhooks and erased events, fails deliveries above a webhook's limit, folds statistics, judges the health of
 * webhooks, decides on circuit breakers and vacuums the queue. Safe to run in any number of processes at once.
 *
 * @param maxPending the maximum number of pending deliveries per webhook; 0 for no limit
 * @param retentionDays breakers send no deliveries again that are older
 * @param longSnapshotS the age of a snapshot, in seconds, from which the log warns of it; as `findLongSnapshot` has it
 * @returns stops it
 */
export function startMaintenance(
  db: Db,
  lease: Pick<WorkerLease, "ids" | "mayEndOthers">,
  log: Logger,
  { leasesExpired, failed: failedDeliveries, breakerChanges }: DeliveryInstruments,
  maxPending: number,
  retentionDays: number,
  longSnapshotS?: number,
): () => Promise<void> {
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

  /**
   * Repeats a step that handles at most `most` rows: one that was not full has left only what came meanwhile. Returns the number of rows.
   */
  async function whileFull(most: number, step: () => Promise<number>): Promise<number> {
    let sum = 0;
    for (let done = most; done >= most && !end.signal.aborted; sum += done) done = await step();
    return sum;
  }

  /** Dead rows of the queue cannot be vacuumed while a snapshot may see them, and each claim scans them. */
  async function warnOfLongSnapshot(): Promise<void> {
    const snapshot = await findLongSnapshot(db, longSnapshotS);
    if (!snapshot || !(await takeTurn(db, "long snapshot warned of", WARN_EVERY_S))) return;
    log.warn(
      { snapshot },
      "long-running transaction slows deliveries down; commit it, or end its session with: select pg_terminate_backend(pid)",
    );
  }

  async function endWorkers(): Promise<void> {
    const workers = lease.mayEndOthers() ? await endExpiredWorkers(db, lease.ids) : [];
    if (workers.length === 0) return;
    leasesExpired.add(workers.length, { holder: "worker" });
    log.warn({ workers }, "ended workers whose lease had expired; their deliveries are free");
  }

  async function failBeyondLimit(): Promise<void> {
    if (maxPending === 0) return;
    const failed = await whileFull(MAX_FAILED_PER_STATEMENT, () =>
      endBeyond(db, maxPending, MAX_FAILED_PER_STATEMENT),
    );
    if (failed === 0) return;
    countFailed(failedDeliveries, failed, "queue_full");
    log.warn(
      { deliveries: failed, maxPending },
      "pending deliveries above MAX_PENDING_PER_WEBHOOK failed; resend them once the endpoint keeps up",
    );
  }

  /** The process that stored a change logs it, so that of all processes one does. */
  function logHealth(changes: readonly HealthChange[]): void {
    const crossed = changes.filter(({ was, health }) => (was === "failing") !== (health === "failing"));
    for (const change of crossed.slice(0, MAX_HEALTH_LINES)) {
      const { health, since } = change;
      if (health === "failing") log.info({ ...named(change), since }, "webhook is failing");
      else log.info({ ...named(change), health }, "webhook has recovered");
    }
    const more = crossed.length - MAX_HEALTH_LINES;
    if (more > 0) log.info({ webhooks: more }, "more webhooks started failing or recovered");
  }

  async function operateBreakers(): Promise<number> {
    const { changes, decided } = await decideBreakers(db, retentionDays, maxPending);
    for (const change of changes) {
      const { state, reason } = change;
      breakerChanges.add(1, { state });
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
      const began = performance.now();
      try {
        for (const [everyRounds, job] of jobs) if (rounds % everyRounds === 0) await job();
      } catch (err) {
        // While the database is unavailable, other parts log it.
        if (!isTransient(err) && !end.signal.aborted) log.error({ err }, "maintenance failed; retrying");
      }
      const pauseMs = Math.min(
        PAUSE.maxMs,
        Math.max(PAUSE.minMs, PAUSE.factor * (performance.now() - began)),
      );
      await wait(pauseMs, undefined, { signal: end.signal, ref: false }).catch(() => {});
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
