import type { Knex } from "knex";
import { stateNotFit } from "../calls/errors/index.ts";
import { reachesKey, reachesWebhook, type Scope, webhookIn } from "../calls/index.ts";
import { processName, processNames } from "../contract/catalogue.ts";
import { DomainError } from "../contract/errors.ts";
import { assertWebhookQuota } from "../keys/index.ts";
import { column, type Db, rows, run, transactionWithRetry } from "../lib/pg/index.ts";
import { takeLock } from "../schema/index.ts";
import { copyWebhook } from "./copied-webhook.ts";
import type { SecretBox } from "./secret-box.ts";
import { lockShared } from "./shared-webhooks.ts";
import { deleteWebhooks, type OnDeleted } from "./webhook-deletion.ts";
import {
  assertRoom,
  assertTakesWebhooks,
  idsOf,
  insertWebhook,
  type NewWebhook,
  type WebhookRow,
  webhookColumns,
} from "./webhooks.ts";

/** Webhooks for several event types that share a URL, secrets and settings. */
export interface EndpointRow {
  id: string;
  created: Date;
  /** The live webhooks that the scope can access, by id; at least one. */
  webhooks: WebhookRow[];
}

/** The attributes of a new endpoint. */
export interface NewEndpoint extends Omit<NewWebhook, "process" | "endpointId"> {
  /** At least one. */
  processes: readonly number[];
}

/** An endpoint that is there, by its id or by one of its webhooks. */
export type EndpointKey = { endpointId: string } | { webhookId: bigint };

/** The endpoint with this id; null if the scope can access none of its webhooks, or it has none. */
export async function getEndpoint(db: Db, scope: Scope, id: string): Promise<EndpointRow | null> {
  const inScope = webhookIn(scope, "w");
  const webhooks = await rows<WebhookRow>(
    db,
    `select ${webhookColumns("w")} from webhooks w
      where w.endpoint_id = :id::uuid and w.deleted is null and ${inScope.sql} order by w.id`,
    { id, ...inScope.bindings },
  );
  if (webhooks.length === 0) return null;
  const [endpoint] = await run(db, db("endpoints").select("id", "created").where({ id }));
  return endpoint ? { ...endpoint, webhooks } : null;
}

/**
 * Registers a URL for several event types: a webhook for each, with the same new signing secret.
 *
 * @param maxWebhooks the maximum number of live webhooks
 * @throws DomainError ALREADY_EXISTS if a webhook has one of the event types and the target; UNAUTHENTICATED if the key was
 *   revoked in the meantime; FAILED_PRECONDITION if there would be more than `maxWebhooks`, or than the key's quota
 */
export function createEndpoint(
  db: Db,
  secrets: SecretBox,
  scope: Scope,
  { processes, ...webhook }: NewEndpoint,
  maxWebhooks: number,
): Promise<EndpointRow> {
  return transactionWithRetry(db, async (trx) => {
    await takeLock(trx, "registration");
    assertTakesWebhooks(processes);
    await assertFree(trx, scope, processes, webhook);
    await assertRoom(trx, maxWebhooks, processes.length, webhook.customer);
    await assertWebhookQuota(trx, webhook.apiKeyId, processes.length);
    const endpoint = await insertEndpoint(trx);
    const webhooks: WebhookRow[] = [];
    for (const process of inOrder(processes)) {
      const [first] = webhooks;
      webhooks.push(
        first
          ? await copyWebhook(trx, secrets, first.id, process)
          : await insertWebhook(trx, secrets, { ...webhook, process, endpointId: endpoint.id }),
      );
    }
    return { ...endpoint, webhooks };
  });
}

/** The event types to add to an endpoint and to remove from it. Types that it has already, or does not have, change nothing. */
export interface EventTypeChanges {
  add: readonly number[];
  remove: readonly number[];
}

/** A changed endpoint. */
export interface EndpointChange {
  endpoint: EndpointRow;
  /** The webhooks that it had before, by id: one without an endpoint, if the endpoint was made of it. */
  before: WebhookRow[];
  added: WebhookRow[];
  removed: WebhookRow[];
}

/**
 * Adds event types to an endpoint and removes others. A webhook without an endpoint gets one. New webhooks belong to the key and
 * the app of the others, and share their secrets and settings; removed ones are deleted.
 *
 * @returns null if the scope has no such webhook
 * @throws DomainError PERMISSION_DENIED if the scope cannot access the whole endpoint, or the key that owns it may not subscribe
 *   to an event type; ALREADY_EXISTS and FAILED_PRECONDITION as `createEndpoint`, and if no event type would be left
 */
export function updateEndpoint(
  db: Db,
  secrets: SecretBox,
  scope: Scope,
  key: EndpointKey,
  { add, remove }: EventTypeChanges,
  maxWebhooks: number,
  onDeleted: OnDeleted,
): Promise<EndpointChange | null> {
  return transactionWithRetry(db, async (trx) => {
    if (add.length > 0) await takeLock(trx, "registration");
    const known = await findOne(trx, scope, key);
    if (known && add.length > 0) await lockOwner(trx, scope, known.apiKeyId, add);
    const webhooks = await lockWebhooks(trx, scope, key);
    const [first] = webhooks;
    if (!first) return null;
    if (first.apiKeyId !== known?.apiKeyId) throw transferred();
    const added = inOrder(add).filter((process) => webhooks.every((each) => each.process !== process));
    const removed = webhooks.filter(({ process }) => remove.includes(process));
    if (removed.length === webhooks.length && added.length === 0) throw noneLeft(first);
    assertTakesWebhooks(added);
    await assertFree(trx, scope, added, first);
    const more = added.length - removed.length;
    if (more > 0) {
      await assertRoom(trx, maxWebhooks, more, first.customer);
      await assertWebhookQuota(trx, first.apiKeyId, more, scope);
    }
    await lockProcesses(trx, first.customer, [...added, ...removed.map(({ process }) => process)]);
    const endpointId = first.endpointId ?? (await makeEndpoint(trx, first.id));
    const made: WebhookRow[] = [];
    for (const process of added) made.push(await copyWebhook(trx, secrets, first.id, process));
    const deleted = removed.length === 0 ? [] : await deleteWebhooks(trx, { ids: idsOf(removed) }, onDeleted);
    const endpoint = await getEndpoint(trx, scope, endpointId);
    if (!endpoint) throw new Error(`endpoint ${endpointId} has no webhook after a change`);
    const before = webhooks.toSorted((a, b) => (a.id < b.id ? -1 : 1));
    return { endpoint, before, added: made, removed: deleted };
  });
}

/**
 * Deletes an endpoint with all of its webhooks, as `deleteWebhook` does.
 *
 * @returns the deleted webhooks; null if the scope has no such endpoint
 * @throws DomainError PERMISSION_DENIED if the scope cannot access all of them
 */
export function deleteEndpoint(
  db: Db,
  scope: Scope,
  id: string,
  onDeleted: OnDeleted,
): Promise<WebhookRow[] | null> {
  return transactionWithRetry(db, async (trx) => {
    const webhooks = await lockWebhooks(trx, scope, { endpointId: id });
    if (webhooks.length === 0) return null;
    return deleteWebhooks(trx, { ids: idsOf(webhooks) }, onDeleted);
  });
}

/** Locks event types by number, as all transactions do: adding one and then removing another would lock them in any order. */
async function lockProcesses(trx: Db, customer: string | null, processes: readonly number[]): Promise<void> {
  const lock = (query: Knex.QueryBuilder) =>
    run(trx, query.select("process").whereIn("process", processes).orderBy("process").forNoKeyUpdate());
  await lock(trx("processes"));
  if (customer !== null) await lock(trx("customer_processes").where({ customer }));
}

/** Each once, by number. */
const inOrder = (processes: readonly number[]) => [...new Set(processes)].sort((a, b) => a - b);

async function insertEndpoint(trx: Db): Promise<{ id: string; created: Date }> {
  const [made] = await rows<{ id: string; created: Date }>(
    trx,
    "insert into endpoints default values returning id, created",
  );
  return made as { id: string; created: Date };
}

/** Makes an endpoint of a locked webhook without one. The endpoint takes over the webhook's tokens. */
async function makeEndpoint(trx: Db, webhookId: bigint): Promise<string> {
  const [id] = await column<string>(
    trx,
    `with made as (
        insert into endpoints (rate_tokens, rate_at)
          select rate_tokens, rate_at from webhooks where id = :webhookId::bigint returning id
      )
      update webhooks w set endpoint_id = made.id, modified = now(), revision = w.revision + 1
      from made where w.id = :webhookId::bigint returning made.id`,
    { webhookId },
  );
  return id as string;
}

/** A live webhook of an endpoint, not locked; undefined if the scope has none. */
async function findOne(
  trx: Db,
  scope: Scope,
  key: EndpointKey,
): Promise<{ id: bigint; apiKeyId: string } | undefined> {
  const inScope = webhookIn(scope, "w");
  const ofKey = "webhookId" in key ? "w.id = :webhookId::bigint" : "w.endpoint_id = :endpointId::uuid";
  const [found] = await rows<{ id: bigint; apiKeyId: string }>(
    trx,
    `select w.id, w.api_key_id as "apiKeyId" from webhooks w
      where ${ofKey} and w.deleted is null and ${inScope.sql} order by w.id limit 1`,
    { ...key, ...inScope.bindings },
  );
  return found;
}

/** All live webhooks of an endpoint, locked as by `lockShared`; none if the scope has none. */
async function lockWebhooks(trx: Db, scope: Scope, key: EndpointKey): Promise<WebhookRow[]> {
  for (;;) {
    const known = await findOne(trx, scope, key);
    if (!known) return [];
    const webhooks = await lockShared(trx, scope, known.id);
    // Otherwise this webhook was deleted during the wait, and the endpoint may have others.
    if (webhooks.length > 0) return webhooks;
  }
}

/**
 * Locks the key that owns an endpoint: its webhooks can be neither transferred nor deleted by a revocation.
 *
 * @throws DomainError PERMISSION_DENIED unless it may subscribe to the event types
 */
async function lockOwner(trx: Db, scope: Scope, id: string, processes: readonly number[]): Promise<void> {
  const [owner] = await run(
    trx,
    trx("api_keys")
      .select("name", "allowed_processes", "revoked", "customer", { installedAppId: "installed_app_id" })
      .where({ id })
      .forShare(),
  );
  if (!owner || owner.revoked) throw transferred();
  const { allowed_processes: allowed } = owner;
  const refused = processes.filter((process) => allowed.length > 0 && !allowed.includes(process));
  if (refused.length === 0) return;
  const isKnown = reachesKey(scope, owner);
  const name = isKnown ? ` “${owner.name}”` : "";
  const only = isKnown ? `, only to ${processNames(allowed)}` : "";
  throw new DomainError(
    "PROCESS_NOT_ALLOWED",
    `the API key${name} that owns the endpoint may not subscribe to ${processNames(refused)}${only}`,
  );
}

/**
 * Checks that no webhook of the same instance has the URL for an event type.
 *
 * @throws DomainError ALREADY_EXISTS that names the webhooks that the scope can access
 */
async function assertFree(
  trx: Db,
  scope: Scope,
  processes: readonly number[],
  { targetUrl, customer = null }: Pick<NewWebhook, "targetUrl" | "customer">,
): Promise<void> {
  const taken = await run(
    trx,
    trx("webhooks")
      .select("id", "process", "customer", { installedAppId: "installed_app_id" })
      .whereIn("process", [...processes])
      .where({ target_url: targetUrl, deleted: null, customer })
      .orderBy("process"),
  );
  if (taken.length === 0) return;
  const named = taken.map((webhook) =>
    reachesWebhook(scope, webhook)
      ? `${processName(webhook.process)} (webhook ${webhook.id})`
      : `${processName(webhook.process)} (a webhook that your key cannot access)`,
  );
  throw new DomainError(
    "WEBHOOK_EXISTS",
    `the URL is registered for ${named.join(", ")}; leave these event types out, choose another URL, or delete these webhooks first`,
  );
}

function noneLeft({ url }: WebhookRow): DomainError {
  return stateNotFit(
    `remove_processes: the endpoint ${url} would have no event type; leave one, or delete the endpoint with DeleteEndpoint`,
  );
}

function transferred(): DomainError {
  return new DomainError(
    "UNAVAILABLE",
    "the endpoint's webhooks were transferred or deleted meanwhile, because their API key was revoked; try again",
    { code: "ABORTED" },
  );
}
