import { setTimeout as wait } from "node:timers/promises";
import type { Logger } from "pino";
import { type BreakerChange, decideBreakers, MAX_DECIDED } from "../db/circuit-breaker/decide.ts";
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

/** The pause between two rounds, in milliseconds. */
const PAUSE_BETWEEN_ROUNDS_MS = 1_000;
/** The number of rounds between checks for long snapshots. */
const ROUNDS_PER_SNAPSHOT_CHECK = 60;
/** The number of rounds after which the warning about a snapshot is repeated. */
const ROUNDS_PER_WARNING = 600;
/** The maximum number of deliveries above a webhook's limit that one statement fails. */
const MAX_FAILED_PER_STATEMENT = 1_000;

/** The number of rounds between removals of the health rows of webhooks without recent failures. */
const FORGET_ROUNDS = 15;
/** The number of rounds between the questions whether this process counts overdue retries. */
const OVERDUE_ROUNDS = 10;
/** The interval between counts of overdue retries, over all processes, in seconds. */
const OVERDUE_EVERY_S = 60;
/** The number of rounds between the questions whether this process vacuums the queue. */
const VACUUM_ROUNDS = 5;
/** The interval between vacuums of the queue, over all processes, in seconds. */
const VACUUM_EVERY_S = 15;
/** The maximum number of log lines about webhooks that start failing or recover, per step of folding. */
const MAX_HEALTH_LINES = 50;

/** Work beside the deliveries, in every process that delivers. */
export interface Maintenance {
  /** Starts the maintenance loop. Later calls have no effect. */
  start(): void;
  close(): Promise<void>;
}

/**
 * Creates the maintenance, which once a second releases the claims of workers with an expired lease, cancels open
 * deliveries of deleted webhooks and erased events, fails deliveries above a webhook's limit, folds statistics, judges the health of
 * webhooks, decides on circuit breakers and vacuums the queue. Safe to run in any number of processes at once.
 *
 * @param maxPending the maximum number of pending deliveries per webhook; 0 for no limit
 * @param retentionDays breakers send no deliveries again that are older
 * @param longSnapshotS the age of a snapshot, in seconds, from which the log warns of it; as `findLongSnapshot` has it
 */
export function createMaintenance(
  db: Db,
  lease: Pick<WorkerLease, "ids" | "mayEndOthers">,
  log: Logger,
  { leasesExpired, failed: failedDeliveries, breakerChanges }: DeliveryInstruments,
  maxPending: number,
  retentionDays: number,
  longSnapshotS?: number,
): Maintenance {
  const end = new AbortController();
  let running: Promise<void> | undefined;

  let rounds = 0;
  let warnedUntil = 0;

  /** Dead rows of the queue cannot be vacuumed while a snapshot may see them, and each claim scans them. */
  async function warnOfLongSnapshot(): Promise<void> {
    if (rounds % ROUNDS_PER_SNAPSHOT_CHECK !== 1 || rounds < warnedUntil) return;
    const snapshot = await findLongSnapshot(db, longSnapshotS);
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
    countFailed(failedDeliveries, failed, "queue_full");
    if (failed > 0)
      log.warn(
        { deliveries: failed, maxPending },
        "pending deliveries above MAX_PENDING_PER_WEBHOOK failed; resend them once the endpoint keeps up",
      );
  }

  /** The process that stored a change logs it, so that of all processes one does. */
  function logHealth(changes: readonly HealthChange[]): void {
    const crossed = changes.filter(({ was, health }) => (was === "failing") !== (health === "failing"));
    for (const { webhookId, targetUrl, health, since } of crossed.slice(0, MAX_HEALTH_LINES)) {
      const webhook = { webhookId: String(webhookId), host: new URL(targetUrl).host };
      if (health === "failing") log.info({ ...webhook, since }, "webhook is failing");
      else log.info({ ...webhook, health }, "webhook has recovered");
    }
    const more = crossed.length - MAX_HEALTH_LINES;
    if (more > 0) log.info({ webhooks: more }, "more webhooks started failing or recovered");
  }

  function logBreakers(changes: readonly BreakerChange[]): void {
    for (const { webhookId, targetUrl, state, reason } of changes) {
      breakerChanges.add(1, { state });
      const webhook = { webhookId: String(webhookId), host: new URL(targetUrl).host };
      if (state === "closed") log.info(webhook, "circuit breaker closed");
      else if (state === "open") log.info({ ...webhook, reason }, "circuit breaker opened");
      else log.warn({ ...webhook, reason }, "webhook disabled by its circuit breaker");
    }
  }

  async function operateBreakers(): Promise<void> {
    for (let decided = MAX_DECIDED; decided === MAX_DECIDED && !end.signal.aborted; ) {
      const step = await decideBreakers(db, retentionDays, maxPending);
      logBreakers(step.changes);
      decided = step.decided;
    }
  }

  /** A count reads all waiting retries, so that of all processes one makes it. */
  async function logOverdue(): Promise<void> {
    if (rounds % OVERDUE_ROUNDS !== 1 || !(await takeTurn(db, "overdue retries logged", OVERDUE_EVERY_S)))
      return;
    const overdue = await accountForOverdue(db);
    if (!overdue) return;
    const { count: retries, oldestDue, webhooks, hosts } = overdue;
    const oldestSeconds = Math.round((Date.now() - oldestDue.getTime()) / 1_000);
    log.info({ retries, oldestSeconds, webhooks, hosts }, "retries are overdue");
  }

  async function vacuum(): Promise<void> {
    if (rounds % VACUUM_ROUNDS !== 1 || !(await takeTurn(db, "queue vacuumed", VACUUM_EVERY_S))) return;
    await vacuumQueue(db);
  }

  async function round(): Promise<void> {
    rounds += 1;
    await warnOfLongSnapshot();
    const workers = lease.mayEndOthers() ? await endExpiredWorkers(db, lease.ids) : [];
    if (workers.length > 0) leasesExpired.add(workers.length, { holder: "worker" });
    if (workers.length > 0)
      log.warn({ workers }, "ended workers whose lease had expired; their deliveries are free");
    while (!end.signal.aborted && (await cancelOfDeleted(db)) > 0);
    await failBeyondLimit();
    // A step that was not full has left only what came meanwhile.
    while (!end.signal.aborted && (await foldDeltas(db, logHealth)) >= FOLD_STEP);
    await operateBreakers();
    if (rounds % FORGET_ROUNDS === 0) await forgetHealthy(db);
    await logOverdue();
    await vacuum();
    // Last: a response that cannot be erased must not hold up the rest.
    await finishErasures(db);
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
