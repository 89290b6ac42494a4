import { setTimeout as wait } from "node:timers/promises";
import { Webhook } from "standardwebhooks";
import { afterEach, expect, test } from "vitest";
import { type ReceivedRequest, type Receiver, type Reply, startReceiver } from "../../demo/receiver.ts";
import { openDatabase, rows } from "../../src/db/database.ts";
import { createEndpoint } from "../../src/db/endpoints/endpoints.ts";
import { readWebhookSecrets } from "../../src/db/webhooks/webhook-secrets.ts";
import { updateWebhook } from "../../src/db/webhooks/webhook-update.ts";
import { newKey } from "../db/endpoints/endpoints.ts";
import { trustedAuthority } from "../support/test-service.ts";
import { type EngineParts, freshRun, pump, startEngine } from "./engine-parts.ts";

const TYPES = ["OrderDispatched", "DocumentCreated", "StockLevelChanged"];
/** What the service promises after a pause, in milliseconds. */
const PROMISED_MS = 1_000;
/** Clocks of one machine, read by two processes and rounded. */
const CLOCKS_MS = 5;

const ends: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

/** An engine, and an endpoint at a receiver; answers the ids of its webhooks. */
async function start(
  processes: readonly number[],
  reply: Reply = () => 200,
  settings: Record<string, string> = {},
): Promise<{ parts: EngineParts; receiver: Receiver; ids: [bigint, bigint] }> {
  const parts = await startEngine(settings);
  const receiver = await startReceiver(await (await trustedAuthority()).issue(["localhost"]), reply);
  ends.push(parts.end, receiver.close);
  const url = `${receiver.url}/`;
  const apiKeyId = await newKey(parts.db);
  const wanted = { processes, url, targetUrl: url, apiKeyId };
  const { webhooks } = await createEndpoint(parts.db, parts.secrets, "everything", wanted, 100);
  return { parts, receiver, ids: webhooks.map(({ id }) => id) as [bigint, bigint] };
}

/** Queues events of the type of each webhook. */
async function queueEvents({ db }: EngineParts, events: number): Promise<void> {
  await db.raw(
    `with e as (
        insert into events (id, api_key_id, idempotency_key, process, user_id, occurred, recipients, payload)
        select new_event_id(), w.api_key_id, w.id || '/' || n, w.process, 'u', now(), 1, '{"N":' || n || '}'
        from generate_series(1, ?::int) n, webhooks w returning id, process
      )
    insert into queue (id, event_id, webhook_id)
    select new_delivery_id(e.id), e.id, w.id from e join webhooks w on w.process = e.process`,
    [events],
  );
}

const typeOf = ({ headers }: ReceivedRequest) => headers["x-service-webhook-process"];
const byType = (received: readonly ReceivedRequest[]) =>
  TYPES.map((type) => received.filter((request) => typeOf(request) === type).length);

test("deliveries of all event types of an endpoint are signed with one secret", async () => {
  const { parts, receiver, ids } = await start([1, 2]);
  await queueEvents(parts, 2);
  await pump(parts.engine, await freshRun(parts.db));
  expect(byType(receiver.received)).toEqual([2, 2, 0]);
  const [secret] = (await readWebhookSecrets(parts.db, parts.secrets, "everything", ids[0])) ?? [];
  const verifier = new Webhook(secret?.secret.toString("base64") ?? "");
  for (const { body, headers } of receiver.received)
    expect(() => verifier.verify(body, headers as Record<string, string>)).not.toThrow();
});

test("an endpoint's rate limit holds over two workers and all event types, none of which waits for the others' end", async () => {
  const rateLimit = 20;
  const { parts, receiver, ids } = await start([1, 2, 3]);
  await queueEvents(parts, 20);
  const since = Date.now();
  await updateWebhook(parts.db, "everything", ids[1], { rateLimit });
  const runId = await freshRun(parts.db);
  await Promise.all([parts.engine, parts.another()].map((engine) => pump(engine, runId)));
  expect(byType(receiver.received)).toEqual([20, 20, 20]);
  const early = receiver.received
    .map(({ at }, n) => at.getTime() - since - ((n + 1) / rateLimit) * 1_000)
    .filter((lateMs) => lateMs < -CLOCKS_MS);
  expect(early).toEqual([]);
  // After half of them, each event type has got about a third.
  for (const sent of byType(receiver.received.slice(0, 30))) expect(sent).toBeGreaterThanOrEqual(7);
});

test("the event types of an endpoint share its requests in flight, and take turns", async () => {
  const opened = Promise.withResolvers<void>();
  let [inFlight, most] = [0, 0];
  const { parts, receiver } = await start(
    [1, 2],
    async () => {
      inFlight += 1;
      most = Math.max(most, inFlight);
      await opened.promise;
      await wait(5);
      inFlight -= 1;
      return 200;
    },
    { DELIVERY_MAX_PER_WEBHOOK: "6", DELIVERY_TIMEOUT: "60s" },
  );
  await queueEvents(parts, 60);
  const pumped = pump(parts.engine, await freshRun(parts.db));
  // A window starts with four requests.
  await expect.poll(() => receiver.received.length).toBe(4);
  expect(byType(receiver.received)).toEqual([2, 2, 0]);
  opened.resolve();
  await pumped;
  expect(byType(receiver.received)).toEqual([60, 60, 0]);
  const [orders = 0, documents = 0] = byType(receiver.received.slice(0, 60));
  expect(Math.abs(orders - documents)).toBeLessThanOrEqual(6);
  expect(most).toBe(6);
});

test("no request of any event type starts later than a second after one of them was paused elsewhere", async () => {
  const deliveries = 4_000;
  const slowly = async () => {
    await wait(20);
    return 200;
  };
  const settings = { DELIVERY_MAX_PER_WEBHOOK: "4", DELIVERY_TIMEOUT: "60s" };
  const { parts, receiver, ids } = await start([1, 2], slowly, settings);
  await queueEvents(parts, deliveries / 2);
  const runId = await freshRun(parts.db);
  const pumped = Promise.all([parts.engine, parts.another()].map((engine) => pump(engine, runId)));
  await receiver.until((received) =>
    byType(received)
      .slice(0, 2)
      .every((sent) => sent > 20),
  );
  const api = openDatabase(parts.url, { max: 1 });
  ends.push(() => api.destroy());
  await updateWebhook(api, "everything", ids[0], { paused: true });
  const answered = Date.now();
  await pumped;
  const last = Math.max(...receiver.received.map(({ at }) => at.getTime()));
  expect(last - answered).toBeLessThan(PROMISED_MS);
  const sent = receiver.received.length;
  expect(sent).toBeLessThan(deliveries / 2);
  const left = await rows<{ n: number }>(
    parts.db,
    "select count(*)::int as n from queue where claimed_by is null",
  );
  expect(left).toEqual([{ n: deliveries - sent }]);
});
