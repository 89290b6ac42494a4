import { SETTING_NAMES, SETTINGS } from "../contract/webhooks/settings.ts";
import { count, type Db, rows, run } from "../lib/pg/index.ts";
import { requestSettingsContext } from "./request-settings.ts";
import {
  keyPairContext,
  openFor,
  type SecretBox,
  type SecretContext,
  webhookSecretContext,
} from "./secret-box.ts";
import { NEW_SECRET } from "./webhook-secrets.ts";
import {
  insertedType,
  nextWebhookId,
  RECEIVER_COLUMNS,
  type WebhookRow,
  webhookColumns,
} from "./webhooks.ts";

/** The columns of settings, and of what the receiver asks for. */
const COPIED = [...SETTING_NAMES.map((name) => SETTINGS[name].column), ...RECEIVER_COLUMNS];

/**
 * Adds a webhook for another event type, with the owner, secrets, settings and circuit breaker of a webhook that is locked by the
 * transaction, which may have given the latter an endpoint. The filter is not copied, because it belongs to an event type.
 *
 * @throws DomainError FAILED_PRECONDITION if no key of this process decrypts a secret
 */
export async function copyWebhook(
  trx: Db,
  box: SecretBox,
  from: bigint,
  process: number,
): Promise<WebhookRow> {
  const [source] = await run(
    trx,
    trx("webhooks").select("secret", "old_secrets", "key_pairs", "request_settings").where({ id: from }),
  );
  if (!source) throw new Error(`webhook ${from} has no row`);
  const id = await nextWebhookId(trx);
  await count(
    trx,
    `insert into webhook_breakers (webhook_id, max_failures, failing_s, probe_s, disable_s, disable_on_gone, resend, state,
        since, reason, failures, failing_since, outage_since, succeeded, gone, probes, next_probe, due)
      select :id::bigint, max_failures, failing_s, probe_s, disable_s, disable_on_gone, resend, state, since, reason, failures,
        failing_since, outage_since, succeeded, gone, probes, next_probe, due
      from webhook_breakers where webhook_id = :from::bigint`,
    { id, from },
  );
  const shared = `a secret of webhook ${from}, which other event types would share,`;
  /** Each value is bound to its webhook. */
  const copied = (sealed: Buffer, contextOf: (webhookId: bigint) => SecretContext) =>
    box.seal(
      openFor(shared, () => box.open(sealed, contextOf(from)), NEW_SECRET),
      contextOf(id),
    );
  const [made] = await rows<WebhookRow>(
    trx,
    `with source as (select * from webhooks where id = :from::bigint),
      ${insertedType("source", true)}
      insert into webhooks as w (id, process, url, target_url, api_key_id, customer, installed_app_id, endpoint_id, paused, customer_paused,
        ${COPIED.join(", ")}, secret, old_secrets, old_secrets_expire, key_pairs, key_pairs_expire, request_settings, created_revision)
      overriding system value
      select :id::bigint, :process::int, s.url, s.target_url, s.api_key_id, s.customer, s.installed_app_id, s.endpoint_id, s.paused, s.customer_paused,
        ${COPIED.map((column) => `s.${column}`).join(", ")}, :secret::bytea, :oldSecrets::bytea[], s.old_secrets_expire, :keyPairs::bytea[], s.key_pairs_expire,
        :settings::bytea, type.revision
      from source s cross join type
      returning ${webhookColumns("w")}`,
    {
      id,
      process,
      from,
      secret: copied(source.secret, webhookSecretContext),
      oldSecrets: source.old_secrets.map((sealed) => copied(sealed, webhookSecretContext)),
      keyPairs: source.key_pairs.map((sealed) => copied(sealed, keyPairContext)),
      settings: source.request_settings && copied(source.request_settings, requestSettingsContext),
    },
  );
  return made as WebhookRow;
}
