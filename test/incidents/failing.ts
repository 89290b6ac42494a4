import { type IncidentChange, trackIncidents } from "../../src/incidents/track.ts";
import type { Db } from "../../src/lib/pg/database.ts";

/** A result of an attempt: nothing listens at the port. */
export const REFUSED = "connection refused; check that the server runs, and its host and port (ECONNREFUSED)";

/** Brings incidents up to date, as if webhooks had begun to fail a minute ago, or had recovered. */
export async function judgedWebhooks(
  db: Db,
  webhookIds: readonly bigint[],
  lastError: string | null = REFUSED,
): Promise<IncidentChange[]> {
  const webhooks = await db("webhooks").whereIn("id", webhookIds).select("id", "target_url");
  const [was, health] =
    lastError === null ? (["failing", "healthy"] as const) : (["healthy", "failing"] as const);
  const since = new Date(Date.now() - 60_000);
  const judged = webhooks.map(({ id, target_url: targetUrl }) => {
    const unnamed = { name: null, application: null, customer: null };
    return { webhookId: BigInt(id), targetUrl, ...unnamed, was, health, since, wasSince: since, lastError };
  });
  return db.transaction((trx) => trackIncidents(trx, judged));
}
