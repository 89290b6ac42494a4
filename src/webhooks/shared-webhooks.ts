import { type Scope, webhookIn } from "../calls/index.ts";
import { DomainError } from "../contract/errors.ts";
import { type Db, rows, run } from "../lib/pg/index.ts";
import { lockBreakers } from "./breakers.ts";
import { idsOf, type WebhookRow, webhookColumns } from "./webhooks.ts";

/**
 * The webhooks that share secrets and settings with a webhook: the live ones of its endpoint, or it alone. The webhook itself
 * comes first.
 *
 * @returns none if the scope has no live webhook with this id
 * @throws DomainError PERMISSION_DENIED if some of them are outside the scope
 */
export async function readShared(db: Db, scope: Scope, id: bigint): Promise<WebhookRow[]> {
  const inScope = webhookIn(scope, "w");
  const found = await rows<WebhookRow & { reachable: boolean }>(
    db,
    `select ${webhookColumns("w")}, (${inScope.sql}) is true as reachable from webhooks w
      where w.deleted is null and (w.id = :id::bigint
        or w.endpoint_id = (select endpoint_id from webhooks where id = :id::bigint))
      order by w.id <> :id::bigint, w.id`,
    { id, ...inScope.bindings },
  );
  const [webhook] = found;
  if (webhook?.id !== id || !webhook.reachable) return [];
  if (found.every(({ reachable }) => reachable)) return found.map(({ reachable: _, ...each }) => each);
  throw new DomainError(
    "NOT_ALLOWED",
    `webhook ${id} shares its secret and its settings with other event types of its endpoint, and your key cannot access all of these; use a key that can`,
  );
}

/**
 * As `readShared`, locked until the end of the transaction: other changes of them and of their circuit breakers wait, and no
 * event type is added to the endpoint.
 *
 * Callers that lock more do so in this order: registrations, API keys, endpoints, webhooks by id, circuit breakers by webhook,
 * event types by number.
 */
export async function lockShared(trx: Db, scope: Scope, id: bigint): Promise<WebhookRow[]> {
  for (;;) {
    const [known] = await run(trx, trx("webhooks").select("endpoint_id").where({ id }));
    const endpointId = known?.endpoint_id ?? null;
    if (endpointId !== null) await lockEndpoint(trx, endpointId);
    const shared = endpointId === null ? { id } : { endpoint_id: endpointId, deleted: null };
    const held = await run(trx, trx("webhooks").select("id").where(shared).orderBy("id").forNoKeyUpdate());
    if (held.length > 1) await lockBreakers(trx, idsOf(held));
    // A separate statement: one that has waited for a lock sees other tables as they were before the wait.
    const found = await readShared(trx, scope, id);
    // Otherwise an endpoint was made of the webhook during the wait. It is locked after the webhook then; callers repeat a
    // transaction that this leads into a deadlock.
    if (found.length === 0 || found[0]?.endpointId === endpointId) return found;
  }
}

/** Locks an endpoint: event types are added to it one call at a time. */
export async function lockEndpoint(trx: Db, id: string): Promise<void> {
  await run(trx, trx("endpoints").select("id").where({ id }).forNoKeyUpdate());
}
