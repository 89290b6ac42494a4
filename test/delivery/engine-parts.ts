import { randomBytes, randomUUID } from "node:crypto";
import pino from "pino";
import { readConfig } from "../../src/config.ts";
import { type Db, openDatabase } from "../../src/db/database.ts";
import { createSecretBox, type SecretBox, WEBHOOK_SECRET_CONTEXT } from "../../src/db/secret-box.ts";
import { createDeliveryEngine, type DeliveryEngine } from "../../src/delivery/engine.ts";
import { createTestDatabase } from "../support/database.ts";

/** A delivery engine on a database of its own. */
export interface EngineParts {
  db: Db;
  engine: DeliveryEngine;
  secrets: SecretBox;
  /** An engine as another process on the same database has it; closed with the first. */
  another(): DeliveryEngine;
  end(): Promise<void>;
}

/** @param settings over the defaults, beside leave to deliver to this machine */
export async function startEngine(settings: Record<string, string> = {}): Promise<EngineParts> {
  const database = await createTestDatabase();
  const db = openDatabase(database.url, { max: 10 });
  const secrets = createSecretBox(randomBytes(32));
  const config = readConfig({ DELIVERY_ALLOWED_NETWORKS: "127.0.0.0/8", ...settings });
  const stopping = new AbortController().signal;
  const engines: DeliveryEngine[] = [];
  function another(): DeliveryEngine {
    const engine = createDeliveryEngine({ db, secrets, log: pino({ level: "silent" }), ...config, stopping });
    engines.push(engine);
    return engine;
  }
  return {
    db,
    engine: another(),
    secrets,
    another,
    async end() {
      await Promise.all(engines.map((engine) => engine.close()));
      await db.destroy();
      await database.drop();
    },
  };
}

/** Registers webhooks at a receiver, and queues each event for each of them; the bodies are `{"N":1}` and on. */
export async function queueFor(
  { db, secrets }: EngineParts,
  receiverUrl: string,
  { webhooks, events }: { webhooks: number; events: number },
): Promise<void> {
  const key = randomUUID();
  await db.raw(
    "insert into api_keys (id, name, prefix, secret_sha256, permissions) values (?, 'k', 'p', ?, '{1}')",
    [key, randomBytes(32)],
  );
  await db.raw(
    `insert into webhooks (process, url, target_url, api_key_id, secret)
      select 1, ? || n, ? || n, ?, ? from generate_series(1, ?::int) n`,
    [
      `${receiverUrl}/`,
      `${receiverUrl}/`,
      key,
      secrets.seal(randomBytes(32), WEBHOOK_SECRET_CONTEXT),
      webhooks,
    ],
  );
  await db.raw(
    `with e as (
      insert into events (id, api_key_id, idempotency_key, request_sha256, process, user_id, occurred, payload)
      select new_delivery_id(), ?::uuid, n, '\\x00'::bytea, 1, 'u', now(), '{"N":' || n || '}' from generate_series(1, ?::int) n
      returning id)
    insert into deliveries (event_id, webhook_id) select e.id, w.id from e, webhooks w where w.api_key_id = ?`,
    [key, events, key],
  );
}
