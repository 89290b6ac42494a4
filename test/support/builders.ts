import { randomBytes, randomUUID } from "node:crypto";
import { createApiKey, type NewApiKey } from "../../src/keys/api-keys.ts";
import type { Db } from "../../src/lib/pg/database.ts";
import { type Stored, storeDeliveries } from "./stored-deliveries.ts";

/** A webhook to be stored as it stands, without the calls that would have brought it there. */
export interface WebhookBuilder {
  /** The URL. A fresh one of receiver.example unless given. */
  at(url: string): WebhookBuilder;
  /** The event type. OrderDispatched unless given. */
  for(process: number): WebhookBuilder;
  /** The id of the API key that owns it. That of a fresh key unless given. */
  ownedBy(apiKeyId: string): WebhookBuilder;
  /** Since now unless given. */
  paused(since?: Date): WebhookBuilder;
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
    paused: (since = new Date()) => changed({ paused: since }),
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

/** A key with the permission to publish and no other. `in` stores it. */
export function aKey(more: Partial<NewApiKey> = {}) {
  return {
    async in(db: Db): Promise<{ id: string; secret: string }> {
      const { key, secret } = await createApiKey(db, { name: "test", permissions: [3], ...more });
      return { id: key.id, secret };
    },
  };
}
