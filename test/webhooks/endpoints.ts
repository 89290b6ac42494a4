import { randomBytes, randomUUID } from "node:crypto";
import { type Db, rows } from "../../src/lib/pg/database.ts";
import { createEndpoint, type EndpointRow } from "../../src/webhooks/endpoints.ts";
import { openRequestSettings } from "../../src/webhooks/request-settings.ts";
import {
  createSecretBox,
  keyPairContext,
  type SecretBox,
  webhookSecretContext,
} from "../../src/webhooks/secret-box.ts";
import { aKey } from "../support/builders.ts";

/** The maximum number of webhooks, unless a test is about it. */
export const MAX = 1_000;

/** A box with a key of its own. */
export const newBox = (): SecretBox => createSecretBox(randomBytes(32));

/** An endpoint at an address of its own. */
export async function newEndpoint(
  db: Db,
  box: SecretBox,
  processes: readonly number[],
  apiKeyId?: string,
): Promise<EndpointRow> {
  const url = `https://receiver.example/${randomUUID()}`;
  const owner = apiKeyId ?? (await aKey().in(db)).id;
  const endpoint = { processes, url, targetUrl: url, apiKeyId: owner, name: "Shop" };
  return createEndpoint(db, box, "everything", endpoint, MAX);
}

/** What the webhooks of an endpoint share, with all secrets opened, for each live one by event type; in whole milliseconds. */
export async function sharedStates(db: Db, box: SecretBox, endpointId: string) {
  const webhooks = await db("webhooks").where({ endpoint_id: endpointId, deleted: null }).orderBy("process");
  const states = new Map<number, Record<string, unknown> & { secrets: string[] }>();
  for (const row of webhooks) {
    const { id } = row;
    const [found] = await rows<{ breaker: string }>(
      db,
      // Without counts: an attempt that is counted while an event type is added is not counted for that type.
      `select concat_ws(' ', state, since, next_probe, max_failures, failing_s, probe_s, disable_s, disable_on_gone, resend)
          as breaker
        from webhook_breakers where webhook_id = :id::bigint`,
      { id },
    );
    const secret = (sealed: Buffer) => box.open(sealed, webhookSecretContext(id)).toString("hex");
    states.set(row.process, {
      name: row.name,
      url: row.url,
      apiKeyId: row.api_key_id,
      installedAppId: row.installed_app_id,
      paused: row.paused?.toISOString() ?? null,
      rateLimit: row.rate_limit,
      timeoutMs: row.timeout_ms,
      secrets: [row.secret, ...row.old_secrets].map(secret),
      keyPairs: row.key_pairs.map((sealed) => box.open(sealed, keyPairContext(id)).toString("hex")),
      expiries: JSON.stringify([row.old_secrets_expire, row.key_pairs_expire]),
      settings: row.request_settings && openRequestSettings(box, id, row.request_settings),
      breaker: found?.breaker ?? null,
    });
  }
  return states;
}
