import { randomBytes } from "node:crypto";
import { DomainError } from "../domain-error.ts";
import type { Db } from "./database.ts";
import { count, rows } from "./database.ts";
import { transactionWithRetry } from "./deadlock.ts";
import { type SecretBox, WEBHOOK_SECRET_CONTEXT } from "./secret-box.ts";

/** A registration, with the name of the installed app it belongs to; its signing secret is asked for apart. */
export interface WebhookRow {
  id: bigint;
  process: number;
  /** As first given. */
  url: string;
  /** As requested. */
  targetUrl: string;
  apiKeyId: string;
  installedAppId: string | null;
  applicationName: string | null;
  /** Most deliveries a second; null for no limit. */
  rateLimit: number | null;
  created: Date;
  modified: Date;
}

/** What is registered. */
export interface NewWebhook {
  process: number;
  url: string;
  /** `url` as TargetRules.normalise gives it: two with the same target and process are one webhook. */
  targetUrl: string;
  apiKeyId: string;
}

const SECRET_BYTES = 32;
const columns = (
  table: string,
) => `${table}.id, ${table}.process, ${table}.url, ${table}.target_url as "targetUrl",
  ${table}.api_key_id as "apiKeyId", ${table}.installed_app_id as "installedAppId",
  (select name from installed_apps where id = ${table}.installed_app_id) as "applicationName",
  ${table}.rate_limit as "rateLimit", ${table}.created, ${table}.modified`;

/** Sets or lifts the limit of deliveries a second; null when there is no live webhook with this id. */
export async function setRateLimit(db: Db, id: bigint, rateLimit: number | null): Promise<WebhookRow | null> {
  const [webhook] = await rows<WebhookRow>(
    db,
    `update webhooks w set rate_limit = :rateLimit::int, rate_tokens = 0, rate_at = now(), modified = now()
      where w.id = :id::bigint and w.deleted is null returning ${columns("w")}`,
    { id, rateLimit },
  );
  return webhook ?? null;
}

/** Every live webhook, of every key, oldest first. */
export function listWebhooks(db: Db): Promise<WebhookRow[]> {
  return rows<WebhookRow>(db, `select ${columns("w")} from webhooks w where w.deleted is null order by w.id`);
}

/**
 * Registers a webhook with a fresh signing secret and the installed app of its key; where a live one has the same
 * process and target, changes nothing and answers that. Safe under concurrent calls.
 *
 * @throws DomainError UNAUTHENTICATED when the key was revoked in the meantime
 */
export async function createWebhook(
  db: Db,
  secrets: SecretBox,
  webhook: NewWebhook,
): Promise<{ webhook: WebhookRow; created: boolean }> {
  for (;;) {
    // Asked first, because every insert that conflicts uses up an id.
    const [existing] = await rows<WebhookRow>(
      db,
      `select ${columns("w")} from webhooks w
        where w.process = :process::int and w.target_url = :targetUrl and w.deleted is null`,
      { process: webhook.process, targetUrl: webhook.targetUrl },
    );
    if (existing) return { webhook: existing, created: false };

    const secret = secrets.seal(randomBytes(SECRET_BYTES), WEBHOOK_SECRET_CONTEXT);
    // The lock makes revoking the key wait, so that no webhook is left behind under a revoked key.
    const [result] = await rows<WebhookRow & { keyFound: boolean }>(
      db,
      `with owner as (
          select id, installed_app_id from api_keys where id = :apiKeyId::uuid and revoked is null for share
        ),
        made as (
          insert into webhooks (process, url, target_url, api_key_id, installed_app_id, secret)
          select :process::int, :url::text, :targetUrl::text, id, installed_app_id, :secret::bytea from owner
          on conflict (process, target_url) where deleted is null do nothing
          returning *
        )
        select exists (select 1 from owner) as "keyFound", ${columns("m")} from (select 1) one left join made m on true`,
      { ...webhook, secret },
    );
    if (!result?.keyFound) throw new DomainError("UNAUTHENTICATED", "the API key was revoked");
    const { keyFound: _, ...made } = result;
    if (made.id !== null) return { webhook: made, created: true };
  }
}

/**
 * Deletes a live webhook and cancels its undelivered deliveries, in one transaction.
 *
 * @returns the deleted webhook, or null when there is no live one with this id
 */
export function deleteWebhook(db: Db, id: bigint): Promise<WebhookRow | null> {
  return transactionWithRetry(db, async (trx) => {
    const [webhook] = await rows<WebhookRow>(
      trx,
      `update webhooks w set deleted = now(), modified = now() where w.id = :id::bigint and w.deleted is null
        returning ${columns("w")}`,
      { id },
    );
    if (!webhook) return null;
    await cancelDeliveries(trx, [id]);
    return webhook;
  });
}

/** Deletes every live webhook of a key, as `deleteWebhook` does; answers how many. Wants a transaction. */
export async function deleteWebhooksOfKey(trx: Db, apiKeyId: string): Promise<number> {
  const deleted = await rows<{ id: bigint }>(
    trx,
    `with doomed as (
        select id from webhooks where api_key_id = :apiKeyId::uuid and deleted is null order by id for update
      )
      update webhooks w set deleted = now(), modified = now() from doomed where w.id = doomed.id returning w.id`,
    { apiKeyId },
  );
  if (deleted.length > 0)
    await cancelDeliveries(
      trx,
      deleted.map((row) => row.id),
    );
  return deleted.length;
}

/** Gives every live webhook of one key to another; answers how many. They keep their installed app. */
export function transferWebhooks(trx: Db, fromKeyId: string, toKeyId: string): Promise<number> {
  return count(
    trx,
    `update webhooks set api_key_id = :toKeyId::uuid, modified = now()
      where api_key_id = :fromKeyId::uuid and deleted is null`,
    { fromKeyId, toKeyId },
  );
}

/** The processes that live webhooks of a key are registered for. */
export async function processesOfKey(db: Db, apiKeyId: string): Promise<number[]> {
  const found = await rows<{ process: number }>(
    db,
    "select distinct process from webhooks where api_key_id = :apiKeyId::uuid and deleted is null order by process",
    { apiKeyId },
  );
  return found.map((row) => row.process);
}

/** The signing secret of a live webhook, 32 bytes; null when there is no such webhook. */
export async function readWebhookSecret(db: Db, secrets: SecretBox, id: bigint): Promise<Buffer | null> {
  const [row] = await rows<{ secret: Buffer }>(
    db,
    "select secret from webhooks where id = :id::bigint and deleted is null",
    { id },
  );
  return row ? secrets.open(row.secret, WEBHOOK_SECRET_CONTEXT) : null;
}

/** Claims stay as they are: an attempt in flight is still recorded against them. */
async function cancelDeliveries(trx: Db, webhookIds: readonly bigint[]): Promise<void> {
  await count(
    trx,
    `with doomed as (
        select id from deliveries
        where webhook_id = any(:webhookIds::bigint[]) and state in ('pending', 'delivering', 'retrying')
        order by id for update
      )
      update deliveries d set state = 'cancelled', finished = now(), reason = 'webhook deleted', retry_at = null
      from doomed where d.id = doomed.id`,
    { webhookIds },
  );
}
