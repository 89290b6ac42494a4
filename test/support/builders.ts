import { randomBytes, randomUUID } from "node:crypto";
import type { Db } from "../../src/db/database.ts";
import { createApiKey, type NewApiKey } from "../../src/db/keys/api-keys.ts";
import { type Stored, storeDeliveries } from "./stored-deliveries.ts";

/** A webhook to be stored as it stands, without the calls that would have brought it there. */
export interface WebhookBuilder {
  /** The URL. A fresh one of receiver.example unless given. */
  at(url: string): WebhookBuilder;
  /** The event type. OrderDispatched unless given. */
  for(process: number): WebhookBuilder;
  /** The id of the API key that owns it. That of a fresh key unless given. */
  ownedBy(apiKeyId: string): WebhookBuilder;
  /** The id of the installed app. None unless given. */
  ofApp(installedAppId: string): WebhookBuilder;
  /** Since now unless given. */
  paused(since?: Date): WebhookBuilder;
  /** The maximum number of deliveries per second, of which the first second's are there. */
  limited(perSecond: number): WebhookBuilder;
  /** Other columns. */
  with(columns: Record<string, unknown>): WebhookBuilder;
  /** Deliveries for it, pending unless they say otherwise. */
  having(...deliveries: Omit<Stored, "webhookId">[]): WebhookBuilder;
  /** Stores it; answers its id. */
  in(db: Db): Promise<bigint>;
}

/** A webhook for OrderDispatched of a fresh key, whose signing secret opens with no key. */
export function aWebhook(
  columns: Record<string, unknown> = {},
  deliveries: readonly Omit<Stored, "webhookId">[] = [],
): WebhookBuilder {
  const changed = (more: Record<string, unknown>) => aWebhook({ ...columns, ...more }, deliveries);
  return {
    at: (url) => changed({ url, target_url: url }),
    for: (process) => changed({ process }),
    ownedBy: (apiKeyId) => changed({ api_key_id: apiKeyId }),
    ofApp: (installedAppId) => changed({ installed_app_id: installedAppId }),
    paused: (since = new Date()) => changed({ paused: since }),
    limited: (perSecond) => changed({ rate_limit: perSecond, rate_tokens: perSecond }),
    with: changed,
    having: (...more) => aWebhook(columns, [...deliveries, ...more]),
    async in(db) {
      const url = `https://receiver.example/${randomUUID()}`;
      const apiKeyId = (columns.api_key_id as string | undefined) ?? (await aKey().in(db)).id;
      const row = {
        process: 1,
        url,
        target_url: url,
        secret: randomBytes(60),
        ...columns,
        api_key_id: apiKeyId,
      };
      const { sql, bindings } = db("webhooks").insert(row).returning("id").toSQL();
      // An id among the columns, too.
      const { rows } = await db.raw(sql.replace(" values ", " overriding system value values "), [
        ...bindings,
      ]);
      const webhookId = BigInt(rows[0].id);
      if (deliveries.length > 0)
        await storeDeliveries(
          db,
          deliveries.map((each) => ({ ...each, webhookId })),
        );
      return webhookId;
    },
  };
}

/** An API key to be stored. */
export interface KeyBuilder {
  with(more: Partial<NewApiKey>): KeyBuilder;
  /** Stores it. */
  in(db: Db): Promise<{ id: string; secret: string }>;
}

/** A key with the permission to publish and no other. */
export function aKey(more: Partial<NewApiKey> = {}): KeyBuilder {
  return {
    with: (changes) => aKey({ ...more, ...changes }),
    async in(db) {
      const { key, secret } = await createApiKey(db, { name: "test", permissions: [3], ...more });
      return { id: key.id, secret };
    },
  };
}
