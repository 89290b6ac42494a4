import { setTimeout as wait } from "node:timers/promises";
import type { Logger } from "pino";
import { findLongSnapshot } from "../db/connections/snapshots.ts";
import type { Db } from "../db/database.ts";
import { FOLD_STEP, foldDeltas } from "../db/deliveries/rollups.ts";
import { isTransient } from "../db/faults.ts";
import { endBeyond } from "../db/queue/endings.ts";
import { endExpiredWorkers } from "../db/queue/workers.ts";
import { takeTurn } from "../db/settings.ts";
import { accountForOverdue } from "../db/webhooks/overdue-retries.ts";
import { forgetHealthy, type HealthChange } from "../db/webhooks/webhook-health.ts";
import { cancelOfDeleted } from "../db/webhooks/webhooks.ts";
import { countFailed, type DeliveryInstruments } from "../metrics/instruments.ts";
import type { WorkerLease } from "./worker-lease.ts";

/** How long it rests between two rounds, in milliseconds. */
const INTERVAL_MS = 1_000;
/** Every so many rounds it looks for snapshots that are held for long. */
const SNAPSHOT_ROUNDS = 60;
/** Rounds after which a snapshot is told of again. */
const TELL_AGAIN_ROUNDS = 600;
/** Deliveries beyond a webhook's limit that are failed at once. */
const BEYOND_STEP = 1_000;

/** Rounds after which webhooks without failures are forgotten. */
const FORGET_ROUNDS = 15;
/** Rounds after which the process asks whether it is to count overdue retries. */
const OVERDUE_ROUNDS = 10;
/** Between two counts of overdue retries, over all processes, in seconds. */
const OVERDUE_EVERY_S = 60;
/** Webhooks that start failing or recover in one step of folding and have a log line of their own, at most. */
const MAX_HEALTH_LINES = 50;

/** Work beside the deliveries, in every process that delivers. */
export interface Maintenance {
  /** Starts it, once. */
  start(): void;
  close(): Promise<void>;
}

/**
 * Frees the claims of workers whose lease has expired, cancels what is left of deleted webhooks, fails what is beyond a
 * webhook's limit, folds statistics, and judges the health of webhooks: a little every second. Any number of processes may do so at once.
 *
 * @param maxPending deliveries that may wait for one webhook; 0 for any number
 */
export function createMaintenance(
  db: Db,
  lease: Pick<WorkerLease, "ids">,
  log: Logger,
  { leasesExpired, failed: failedDeliveries }: DeliveryInstruments,
  maxPending: number,
): Maintenance {
  const end = new AbortController();
  let running: Promise<void> | undefined;

  let rounds = 0;
  let toldUntil = 0;

  /** Dead rows of the queue stay while a snapshot may see them, and each claim passes by them. */
  async function tellOfSnapshot(): Promise<void> {
    if (rounds % SNAPSHOT_ROUNDS !== 0 || rounds < toldUntil) return;
    const snapshot = await findLongSnapshot(db);
    if (!snapshot) return;
    toldUntil = rounds + TELL_AGAIN_ROUNDS;
    log.warn(
      { snapshot },
      "a transaction has been open for minutes and slows deliveries down; end it, or if it is forgotten: select pg_terminate_backend(pid)",
    );
  }

  async function failBeyondLimit(): Promise<void> {
    if (maxPending === 0) return;
    let failed = 0;
    for (let step = BEYOND_STEP; step === BEYOND_STEP && !end.signal.aborted; failed += step)
      step = await endBeyond(db, maxPending, BEYOND_STEP);
    countFailed(failedDeliveries, failed, "queue_full");
    if (failed > 0)
      log.warn(
        { deliveries: failed, maxPending },
        "failed what was beyond MAX_PENDING_PER_WEBHOOK; it can be sent again",
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

  async function round(): Promise<void> {
    rounds += 1;
    await tellOfSnapshot();
    const workers = await endExpiredWorkers(db, lease.ids);
    if (workers.length > 0) leasesExpired.add(workers.length, { holder: "worker" });
    if (workers.length > 0)
      log.warn({ workers }, "ended workers whose lease had expired; their deliveries are free");
    while (!end.signal.aborted && (await cancelOfDeleted(db)) > 0);
    await failBeyondLimit();
    // A step that was not full has left only what came meanwhile.
    while (!end.signal.aborted && (await foldDeltas(db, logHealth)) >= FOLD_STEP);
    if (rounds % FORGET_ROUNDS === 0) await forgetHealthy(db);
    await logOverdue();
  }

  async function run(): Promise<void> {
    while (!end.signal.aborted) {
      try {
        await round();
      } catch (err) {
        // While the database is away others say so.
        if (!isTransient(err) && !end.signal.aborted) log.error({ err }, "maintenance failed; it goes on");
      }
      await wait(INTERVAL_MS, undefined, { signal: end.signal, ref: false }).catch(() => {});
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
