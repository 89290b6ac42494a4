import { type BreakerChange, decideBreakers } from "../../src/breakers/decide.ts";
import type { Db } from "../../src/lib/pg/database.ts";
import type { ClaimedDelivery } from "../../src/queue/claims.ts";
import type { BreakerSettings } from "../../src/webhooks/breakers.ts";
import { foldAll, record, SPACING } from "../queue/queue.ts";

/** Opens with the third failure after half an hour. */
export const SETTINGS: BreakerSettings = {
  failures: 3,
  failingSeconds: 1_800,
  probeSeconds: 60,
  disableSeconds: 432_000,
  disableOnGone: false,
  resendFailed: false,
};

/** Folds what was recorded, and decides until nothing is due; answers the changes, in the order of the webhooks. */
export async function decided(db: Db, maxPending = 0): Promise<BreakerChange[]> {
  await foldAll(db);
  const changes: BreakerChange[] = [];
  for (;;) {
    const step = await decideBreakers(db, 30, maxPending);
    changes.push(...step.changes);
    // A breaker that is due at once, since it sends again, is decided on again.
    if (step.decided === 0) return changes.sort((one, other) => Number(one.webhookId - other.webhookId));
  }
}

/** Records results, and decides. */
export async function answer(db: Db, deliveries: ClaimedDelivery[], status: number, spacing = SPACING) {
  await record(db, deliveries, status, spacing);
  return decided(db);
}

/** Makes what breakers know so much older, and what has ended. */
export async function letPass(db: Db, seconds: number): Promise<void> {
  const times = [
    "since",
    "failing_since",
    "outage_since",
    "next_probe",
    "due",
    "resend_from",
    "resend_until",
  ];
  const earlier = times.map((column) => `${column} = ${column} - make_interval(secs => :seconds)`);
  await db.raw(`update webhook_breakers set ${earlier.join(", ")}`, { seconds });
  await db.raw("update deliveries set finished = finished - make_interval(secs => :seconds)", { seconds });
}

/** The actions of the audit log about a webhook, in their order. */
export const actionsOn = (db: Db, webhookId: bigint): Promise<string[]> =>
  db("audit_log")
    .where({ target_id: String(webhookId) })
    .orderBy("id")
    .pluck("action");
