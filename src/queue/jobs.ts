import type { Logger } from "pino";
import type { DeliveryConfig } from "../config/index.ts";
import type { Db } from "../lib/pg/index.ts";
import type { Job } from "../lib/process/index.ts";
import { countFailed, type DeliveryInstruments } from "../metrics/index.ts";
import { takeTurn } from "../schema/index.ts";
import { cancelOfDeleted } from "./deleted-webhooks.ts";
import { endBeyond, endBeyondQuotas } from "./endings.ts";
import { accountForOverdue } from "./overdue-retries.ts";
import { findLongSnapshot } from "./snapshots.ts";
import { vacuumQueue } from "./vacuum.ts";
import { endExpiredWorkers } from "./workers.ts";

/** The interval between warnings about long snapshots, over all processes, in seconds. */
const WARN_EVERY_S = 600;
/** The maximum number of deliveries above a webhook's limit that one statement fails. */
const MAX_FAILED_PER_STATEMENT = 1_000;
/** The interval between counts of overdue retries, over all processes, in seconds. */
const OVERDUE_EVERY_S = 60;
/** The interval between vacuums of the queue, over all processes, in seconds. */
const VACUUM_EVERY_S = 15;

/** The parts that the jobs of the queue need. */
export interface JobParts {
  db: Db;
  /** This process's ids in `workers`, and whether it may end the workers of others. */
  lease: { readonly ids: readonly number[]; mayEndOthers(): boolean };
  log: Logger;
  instruments: DeliveryInstruments;
  delivery: Pick<DeliveryConfig, "maxPendingPerWebhook">;
  /** The age of a snapshot, in seconds, from which the log warns of it; as `findLongSnapshot` has it. */
  longSnapshotS?: number;
}

/** The jobs of the queue. */
export const QUEUE_JOBS: readonly Job<JobParts>[] = [
  { name: "warn of long snapshots", everyS: 60, run: warnOfLongSnapshot },
  { name: "end workers", run: endWorkers },
  { name: "cancel deliveries of deleted webhooks", most: 1, run: ({ db }) => cancelOfDeleted(db) },
  { name: "fail deliveries beyond the limit", run: failBeyondLimit },
  { name: "log overdue retries", everyS: 10, run: logOverdue },
  { name: "vacuum the queue", everyS: 5, run: vacuum },
];

/** Dead rows of the queue cannot be vacuumed while a snapshot may see them, and each claim scans them. */
async function warnOfLongSnapshot({ db, log, longSnapshotS }: JobParts): Promise<void> {
  const snapshot = await findLongSnapshot(db, longSnapshotS);
  if (!snapshot || !(await takeTurn(db, "long snapshot warned of", WARN_EVERY_S))) return;
  log.warn(
    { snapshot },
    "long-running transaction slows deliveries down; commit it, or end its session with: select pg_terminate_backend(pid)",
  );
}

async function endWorkers({ db, lease, log, instruments }: JobParts): Promise<void> {
  const workers = lease.mayEndOthers() ? await endExpiredWorkers(db, lease.ids) : [];
  if (workers.length === 0) return;
  instruments.leasesExpired.add(workers.length, { holder: "worker" });
  log.warn({ workers }, "ended workers whose lease had expired; their deliveries are free");
}

async function failBeyondLimit(
  { db, log, instruments, delivery }: JobParts,
  stop: AbortSignal,
): Promise<void> {
  const { maxPendingPerWebhook: maxPending } = delivery;
  const most = MAX_FAILED_PER_STATEMENT;
  async function fail(step: () => Promise<number>, facts: object, message: string): Promise<void> {
    let failed = 0;
    for (let done = most; done >= most && !stop.aborted; failed += done) done = await step();
    if (failed === 0) return;
    countFailed(instruments.failed, failed, "queue_full");
    log.warn({ deliveries: failed, ...facts }, message);
  }
  if (maxPending > 0) {
    const message =
      "pending deliveries above MAX_PENDING_PER_WEBHOOK failed; resend them once the endpoint keeps up";
    await fail(() => endBeyond(db, maxPending, most), { maxPending }, message);
  }
  const message =
    "pending deliveries above the quotas of customers failed; resend them once their endpoints keep up";
  await fail(() => endBeyondQuotas(db, most), {}, message);
}

/** Scans all waiting retries, so only one process does so per interval. */
async function logOverdue({ db, log }: JobParts): Promise<void> {
  if (!(await takeTurn(db, "overdue retries logged", OVERDUE_EVERY_S))) return;
  const overdue = await accountForOverdue(db);
  if (!overdue) return;
  const { count: retries, oldestDue, webhooks, hosts } = overdue;
  const oldestSeconds = Math.round((Date.now() - oldestDue.getTime()) / 1_000);
  log.info({ retries, oldestSeconds, webhooks, hosts }, "retries are overdue");
}

async function vacuum({ db }: JobParts): Promise<void> {
  if (await takeTurn(db, "queue vacuumed", VACUUM_EVERY_S)) await vacuumQueue(db);
}
