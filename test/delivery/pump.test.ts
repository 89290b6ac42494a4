import { randomBytes, randomUUID } from "node:crypto";
import pino from "pino";
import { afterAll, beforeAll, expect, test } from "vitest";
import { readConfig } from "../../src/config.ts";
import { type Db, openDatabase, rows } from "../../src/db/database.ts";
import { createSecretBox, WEBHOOK_SECRET_CONTEXT } from "../../src/db/secret-box.ts";
import { createDeliveryEngine, type DeliveryEngine } from "../../src/delivery/engine.ts";
import { pump } from "../../src/delivery/pump.ts";
import { type Receiver, startReceiver } from "../../src/dev/receiver.ts";
import { freshToken } from "../db/queue.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { trustedAuthority } from "../support/test-service.ts";

const [WEBHOOKS, EVENTS] = [700, 20];
let database: TestDatabase;
let db: Db;
let engine: DeliveryEngine;
let receiver: Receiver;

beforeAll(async () => {
  database = await createTestDatabase();
  db = openDatabase(database.url, { max: 10 });
  receiver = await startReceiver(await (await trustedAuthority()).issue(["localhost"]));
  const secrets = createSecretBox(randomBytes(32));
  const config = readConfig({ DELIVERY_ALLOWED_NETWORKS: "127.0.0.0/8" });
  const stopping = new AbortController().signal;
  engine = createDeliveryEngine({ db, secrets, log: pino({ level: "silent" }), ...config, stopping });
  const key = randomUUID();
  await db.raw(
    "insert into api_keys (id, name, prefix, secret_sha256, permissions) values (?, 'k', 'p', ?, '{1}')",
    [key, randomBytes(32)],
  );
  await db.raw(
    `insert into webhooks (process, url, target_url, api_key_id, secret)
      select 1, ? || n, ? || n, ?, ? from generate_series(1, ?::int) n`,
    [
      `${receiver.url}/`,
      `${receiver.url}/`,
      key,
      secrets.seal(randomBytes(32), WEBHOOK_SECRET_CONTEXT),
      WEBHOOKS,
    ],
  );
  await db.raw(
    `with e as (
      insert into events (id, api_key_id, idempotency_key, request_sha256, process, user_id, occurred, payload)
      select new_delivery_id(), ?::uuid, n, '\\x00'::bytea, 1, 'u', now(), '{"N":' || n || '}' from generate_series(1, ?::int) n
      returning id)
    insert into deliveries (event_id, webhook_id) select e.id, w.id from e, webhooks w`,
    [key, EVENTS],
  );
});
afterAll(async () => {
  await engine.close();
  await receiver.close();
  await db.destroy();
  await database.drop();
});

test("pumps side by side deliver many deliveries of few events once each, with their own payloads", async () => {
  const token = await freshToken(db);
  const pumps = Array.from({ length: 4 }, () =>
    pump(engine, { ...token, activity: randomUUID() }, AbortSignal.timeout(25_000)),
  );
  const results = await Promise.all(pumps);
  expect(results.reduce((sum, { delivered }) => sum + delivered, 0)).toBe(WEBHOOKS * EVENTS);
  expect(results.every(({ more }) => !more)).toBe(true);
  expect(receiver.received).toHaveLength(WEBHOOKS * EVENTS);
  for (let n = 1; n <= EVENTS; n += 1) {
    expect(receiver.received.filter(({ body }) => body === `{"N":${n}}`)).toHaveLength(WEBHOOKS);
  }
  const states = await rows(db, "select state, attempts, count(*)::int as n from deliveries group by 1, 2");
  expect(states).toEqual([{ state: "delivered", attempts: 1, n: WEBHOOKS * EVENTS }]);
});
