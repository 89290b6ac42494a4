import { randomBytes, randomUUID } from "node:crypto";
import { beforeEach, expect, test } from "vitest";
import { WebhookProcess } from "../../../gen/webhook/v1/event_pb.ts";
import { describeEventTypes } from "../../../src/api/services/webhooks/event-types.ts";
import { noteGone } from "../../../src/db/circuit-breaker/note-attempts.ts";
import { imbalance, readLedger } from "../../../src/db/deliveries/ledger.ts";
import { foldDeltas } from "../../../src/db/deliveries/rollups.ts";
import { startRound } from "../../../src/db/deliveries/send-again.ts";
import { publishEvents } from "../../../src/db/events/publish.ts";
import { queueTestEvent } from "../../../src/db/events/test-events.ts";
import { createInstalledApp } from "../../../src/db/keys/installed-apps.ts";
import { listPartitions, PARTITIONED } from "../../../src/db/partitions.ts";
import { endBeyond } from "../../../src/db/queue/endings.ts";
import { adoptRetries, assignGroups } from "../../../src/db/queue/retry-groups.ts";
import { createSecretBox } from "../../../src/db/webhooks/secret-box.ts";
import { updateWebhook } from "../../../src/db/webhooks/webhook-update.ts";
import { createWebhook, deleteWebhook, getWebhook } from "../../../src/db/webhooks/webhooks.ts";
import { aKey } from "../../support/builders.ts";
import { anEvent } from "../../support/new-event.ts";
import { schemaValidator } from "../../support/schema-validator.ts";
import { decided, SETTINGS } from "../circuit-breaker/breakers.ts";
import { claim, claimRetries, freshClaimant, openQueueDatabase, record } from "../queue/queue.ts";

const { WEBHOOK_FAILING, WEBHOOK_RECOVERED, WEBHOOK_DISABLED, DELIVERY_FAILED } = WebhookProcess;
const EVERY_NOTICE = [WEBHOOK_FAILING, WEBHOOK_RECOVERED, WEBHOOK_DISABLED, DELIVERY_FAILED];

const db = await openQueueDatabase();
const secrets = createSecretBox(randomBytes(32));

const BREAKER = { ...SETTINGS, failures: 1_000, disableOnGone: true };

/** The id of a key that may subscribe to event types, all unless given. */
async function key(installedAppId?: string, allowedProcesses: number[] = []): Promise<string> {
  const permissions = [1, 2, 3];
  const ofApp = installedAppId === undefined ? {} : { installedAppId };
  return (await aKey({ permissions, allowedProcesses, ...ofApp }).in(db)).id;
}

/** A key without an app. */
let admin: string;
beforeEach(async () => {
  admin = await key();
});

const app = async () => (await createInstalledApp(db, "App")).id;

/** Registers a webhook of a key; answers its id. */
async function register(apiKeyId: string, process = 1): Promise<bigint> {
  const url = `https://shop.example/${randomUUID()}`;
  return (await createWebhook(db, secrets, { process, url, targetUrl: url, apiKeyId }, 1_000)).webhook.id;
}

async function answeredGone(webhookId: bigint): Promise<void> {
  await noteGone(db, webhookId, (await getWebhook(db, "everything", webhookId))?.targetUrl ?? "");
}

const publish = (apiKeyId: string, events: number, process = 1) =>
  publishEvents(
    db,
    Array.from({ length: events }, () => anEvent({ apiKeyId, process, userId: "tenant-7" })),
  );

/** Makes one attempt of everything that is pending. */
const attemptAll = async (status: number) => record(db, await claim(db), status);

/** Makes every retry of what waits, until the round is over. */
async function failRetries(): Promise<void> {
  for (;;) {
    const claimant = await freshClaimant(db);
    await db("retries").update({ run_id: null });
    if ((await adoptRetries(db, claimant.runId)) === 0) return;
    await assignGroups(db, claimant.runId);
    await db("run_groups").update({ group_number: 1 });
    await record(db, await claimRetries(db, claimant), 503);
  }
}

/** By event type, whether a payload is valid by the schema that the service describes, and the order of its sample. */
const TYPES = new Map(
  describeEventTypes().map(({ number, schema, sample }) => [
    number,
    { isValid: schemaValidator(schema), names: Object.keys(JSON.parse(sample)) },
  ]),
);

/** Folds, decides on breakers, and answers the notices so far with their receivers. All are as their types describe. */
async function notices() {
  await decided(db);
  expect(imbalance(await readLedger(db))).toBe(0n);
  const events = await db("events").where("process", ">", 10_000).where({ test: false }).orderBy("id");
  return Promise.all(
    events.map(async ({ id, process, user_id: userId, payload: json }) => {
      const payload = JSON.parse(json);
      const type = TYPES.get(process);
      expect(type?.isValid(payload), json).toBe(true);
      expect(Object.keys(payload)).toEqual(type?.names);
      const receivers = db("all_deliveries").where({ event_id: id }).orderBy("webhook_id");
      return { process, userId, payload, webhooks: (await receivers.pluck("webhook_id")) as bigint[] };
    }),
  );
}

/** Each notice and its receivers. */
const sent = async () => (await notices()).map(({ process, webhooks }) => [process, webhooks]);

test("a webhook that fails and recovers causes one notice each, with its health before and after", async () => {
  const webhookId = await register(admin);
  await updateWebhook(db, "everything", webhookId, { name: "Shop" });
  const failing = await register(admin, WEBHOOK_FAILING);
  const recovered = await register(admin, WEBHOOK_RECOVERED);
  await publish(admin, 3);
  const deliveries = await claim(db);
  for (const [n, status] of [503, 500, 200].entries()) {
    await record(db, deliveries.slice(n, n + 1), status);
    await notices();
  }
  expect(await sent()).toEqual([
    [WEBHOOK_FAILING, [failing]],
    [WEBHOOK_RECOVERED, [recovered]],
  ]);
  const [began, ended] = (await notices()).map(({ payload }) => payload);
  const Webhook = { Id: Number(webhookId), Name: "Shop", Host: "shop.example", Application: null };
  const failed = { HealthBefore: "Healthy", Health: "Failing", LastError: "HTTP status 503" };
  expect(began).toMatchObject({ Webhook, ...failed });
  const healthy = { HealthBefore: "Failing", Health: "Degraded", LastError: "HTTP status 500" };
  expect(ended).toMatchObject({ ...healthy, FailingSince: began.Since });
});

test("a webhook disabled by its circuit breaker causes one notice with the reason", async () => {
  const webhookId = await register(admin);
  const subscriber = await register(admin, WEBHOOK_DISABLED);
  await updateWebhook(db, "everything", webhookId, { breaker: BREAKER });
  await publish(admin, 1);
  await attemptAll(410);
  await answeredGone(webhookId);
  const found = await notices();
  const reasons = { Reason: "the endpoint answered 410 Gone", LastError: "HTTP status 410" };
  const payload = { Webhook: { Id: Number(webhookId) }, Health: "Failing", ...reasons };
  expect(found).toMatchObject([{ process: WEBHOOK_DISABLED, webhooks: [subscriber], payload }]);
  expect(await notices()).toEqual(found);
});

test("each failed delivery causes one notice, of the user of its event, and another one when it fails again", async () => {
  const webhookId = await register(admin);
  const subscriber = await register(admin, DELIVERY_FAILED);
  await publish(admin, 2);
  const deliveries = await claim(db);
  await record(db, deliveries, 503);
  expect(await notices()).toEqual([]);
  await failRetries();
  const found = await notices();
  const about = deliveries.map(({ id, eventId }) => [id, eventId]).sort();
  expect(found.map(({ payload }) => [payload.DeliveryId, payload.EventId]).sort()).toEqual(about);
  const why = { Attempts: 4, Reason: null, LastError: "HTTP status 503" };
  const payload = { Webhook: { Id: Number(webhookId) }, EventType: "OrderDispatched", ...why };
  const notice = { process: DELIVERY_FAILED, webhooks: [subscriber], userId: "tenant-7", payload };
  expect(found).toMatchObject([notice, notice]);

  // The notices themselves are delivered.
  await attemptAll(200);
  const DeliveryId = found[0]?.payload.DeliveryId;
  expect(await startRound(db, "everything", [DeliveryId], 30)).toHaveLength(1);
  await attemptAll(502);
  await failRetries();
  expect((await notices()).slice(2)).toMatchObject([{ payload: { DeliveryId, Attempts: 8 } }]);
});

test("a delivery that fails without an attempt causes a notice with the reason", async () => {
  await register(admin);
  await register(admin, DELIVERY_FAILED);
  await publish(admin, 3);
  expect(await endBeyond(db, 2, 100)).toBe(1);
  expect(await notices()).toMatchObject([
    { payload: { Attempts: 0, Reason: "queue full", LastError: null } },
  ]);
});

test("a webhook of an app receives notices of its app only; one without an app receives all", async () => {
  const owners = [admin, await key(await app()), await key(await app())];
  const subscribers: bigint[] = [];
  const about: bigint[] = [];
  for (const owner of owners) {
    subscribers.push(await register(owner, WEBHOOK_FAILING));
    about.push(await register(owner));
  }
  await publish(admin, 1);
  await attemptAll(503);
  const [all, ...ofApps] = subscribers;
  const found = (await notices()).sort((a, b) => a.payload.Webhook.Id - b.payload.Webhook.Id);
  expect(found.map(({ payload, webhooks }) => [BigInt(payload.Webhook.Id), webhooks])).toEqual([
    [about[0], [all]],
    [about[1], [all, ofApps[0]]],
    [about[2], [all, ofApps[1]]],
  ]);
});

test("a notice reaches no webhook of the app whose key may not subscribe to the event type concerned", async () => {
  const appId = await app();
  const wide = await key(appId);
  const subscriber = await register(await key(appId, [3, WEBHOOK_FAILING]), WEBHOOK_FAILING);
  await register(wide);
  await register(wide, 3);
  await publish(wide, 1);
  await publish(wide, 1, 3);
  await attemptAll(503);
  const found = await notices();
  expect(found.map(({ payload, webhooks }) => [payload.Webhook.WebhookProcess, webhooks])).toEqual([
    ["StockLevelChanged", [subscriber]],
  ]);
});

test("without a subscription of its app, a change stores nothing", async () => {
  const other = await key(await app());
  await register(admin);
  for (const process of [WEBHOOK_FAILING, DELIVERY_FAILED]) await register(other, process);
  await publish(admin, 1);
  await attemptAll(503);
  await failRetries();
  expect(await notices()).toEqual([]);
});

test("ids of failed deliveries are kept only while a webhook subscribes to their notices", async () => {
  await register(admin);
  const subscriber = await register(admin, DELIVERY_FAILED);
  const kept = async () => {
    await publish(admin, 1);
    await attemptAll(503);
    await failRetries();
    return (await db("rollup_deltas").delete().returning("failed_ids")).flatMap(
      (row) => row.failed_ids ?? [],
    );
  };
  expect(await kept()).toHaveLength(1);
  await deleteWebhook(db, subscriber);
  expect(await kept()).toHaveLength(0);
});

test("the attempts of a notice cause no notice, whatever becomes of them", async () => {
  const subscribers: bigint[] = [];
  for (const process of EVERY_NOTICE) subscribers.push(await register(admin, process));
  const failing = subscribers[0] as bigint;
  await updateWebhook(db, "everything", failing, { breaker: BREAKER });
  await register(admin);
  await publish(admin, 1);
  await attemptAll(503);
  const first = await sent();
  expect(first).toMatchObject([[WEBHOOK_FAILING, [failing]]]);
  // The delivery of the notice fails, as does that of the order.
  await attemptAll(503);
  expect(await sent()).toEqual(first);
  await failRetries();
  const all = await notices();
  expect(all).toMatchObject([{}, { process: DELIVERY_FAILED, payload: { EventType: "OrderDispatched" } }]);
  await answeredGone(failing);
  expect(await notices()).toEqual(all);
  expect(await db("webhook_breakers").pluck("state")).toEqual(["disabled"]);
  // The notice of the failed delivery has been sent, and recovers nothing.
  await attemptAll(200);
  expect(await notices()).toEqual(all);
});

test("test events cause no notice of a failed delivery", async () => {
  const webhookId = await register(admin);
  await register(admin, DELIVERY_FAILED);
  await queueTestEvent(db, "everything", { apiKeyId: admin, webhookId, process: 1, payload: "{}" });
  await attemptAll(503);
  await failRetries();
  expect(await notices()).toEqual([]);
});

test("processes that fold and decide at once publish each notice once", async () => {
  const subscribers = [await register(admin, WEBHOOK_FAILING), await register(admin, DELIVERY_FAILED)];
  for (let n = 0; n < 5; n += 1) await register(admin);
  await publish(admin, 2);
  await attemptAll(503);
  await failRetries();
  await Promise.all(Array.from({ length: 8 }, () => foldDeltas(db)));
  const found = (await sent()).sort(([one], [other]) => Number(one) - Number(other));
  const failing = Array(5).fill([WEBHOOK_FAILING, subscribers.slice(0, 1)]);
  expect(found).toEqual([...failing, ...Array(10).fill([DELIVERY_FAILED, subscribers.slice(1)])]);
});

test("a change whose notice cannot be stored is not stored either, and both are stored later", async () => {
  const subscriber = await register(admin, WEBHOOK_FAILING);
  await register(admin);
  await publish(admin, 1);
  await attemptAll(503);
  await db.raw("alter table idempotency_keys rename to away");
  await expect(foldDeltas(db)).rejects.toThrow("idempotency_keys");
  await db.raw("alter table away rename to idempotency_keys");
  expect(await db("webhook_health")).toEqual([]);
  expect(await sent()).toEqual([[WEBHOOK_FAILING, [subscriber]]]);
});

test("a notice creates the partition of its day", async () => {
  const subscriber = await register(admin, WEBHOOK_FAILING);
  const webhookId = await register(admin);
  await db.raw(
    `insert into rollup_deltas (minute, webhook_ids, changes, durations_ms)
      values (date_trunc('minute', now()), array[?::bigint], '{0}', '{5}')`,
    [String(webhookId)],
  );
  for (const table of PARTITIONED)
    for (const { name } of await listPartitions(db, table)) await db.raw(`drop table ${name}`);
  expect(await sent()).toEqual([[WEBHOOK_FAILING, [subscriber]]]);
});
