import { randomBytes, randomUUID } from "node:crypto";
import { expect, test } from "vitest";
import { WebhookProcess } from "../../../gen/webhook/v1/event_pb.ts";
import { describeEventTypes } from "../../../src/api/services/webhooks/event-types.ts";
import { decideBreakers } from "../../../src/db/circuit-breaker/decide.ts";
import { noteGone } from "../../../src/db/circuit-breaker/note-attempts.ts";
import { rows } from "../../../src/db/database.ts";
import { imbalance, readLedger } from "../../../src/db/deliveries/ledger.ts";
import { foldDeltas } from "../../../src/db/deliveries/rollups.ts";
import { startRound } from "../../../src/db/deliveries/send-again.ts";
import { publishEvents } from "../../../src/db/events/publish.ts";
import { queueTestEvent } from "../../../src/db/events/test-events.ts";
import { ALL_PERMISSIONS, createApiKey } from "../../../src/db/keys/api-keys.ts";
import { createInstalledApp } from "../../../src/db/keys/installed-apps.ts";
import { listPartitions } from "../../../src/db/partitions.ts";
import { type ClaimedDelivery, claimGroup, claimPending } from "../../../src/db/queue/claims.ts";
import { endBeyond } from "../../../src/db/queue/endings.ts";
import { recordAttempts } from "../../../src/db/queue/results.ts";
import { adoptRetries, assignGroups } from "../../../src/db/queue/retry-groups.ts";
import { createSecretBox } from "../../../src/db/webhooks/secret-box.ts";
import { updateWebhook } from "../../../src/db/webhooks/webhook-update.ts";
import { createWebhook, deleteWebhook, getWebhook } from "../../../src/db/webhooks/webhooks.ts";
import { anEvent } from "../../support/new-event.ts";
import { schemaValidator } from "../../support/schema-validator.ts";
import { ALL, freshClaimant, NO_WAIT, openQueueDatabase, result } from "../queue/queue.ts";

const { WEBHOOK_FAILING, WEBHOOK_RECOVERED, WEBHOOK_DISABLED, DELIVERY_FAILED } = WebhookProcess;

const db = await openQueueDatabase();
const secrets = createSecretBox(randomBytes(32));

const BREAKER = {
  failures: 10,
  failingSeconds: 1_800,
  probeSeconds: 60,
  disableSeconds: 432_000,
  disableOnGone: true,
  resendFailed: false,
};

interface Owner {
  keyId: string;
  appId: string | null;
}

async function owner(ofApp = false): Promise<Owner> {
  const appId = ofApp ? (await createInstalledApp(db, "App")).id : null;
  return key(appId);
}

async function key(appId: string | null, allowedProcesses: number[] = []): Promise<Owner> {
  const { key } = await createApiKey(db, {
    name: "k",
    permissions: ALL_PERMISSIONS,
    allowedProcesses,
    ...(appId === null ? {} : { installedAppId: appId }),
  });
  return { keyId: key.id, appId };
}

async function register({ keyId }: Owner, process = 1): Promise<bigint> {
  const url = `https://shop.example/${randomUUID()}`;
  const { webhook } = await createWebhook(
    db,
    secrets,
    { process, url, targetUrl: url, apiKeyId: keyId },
    1_000,
  );
  return webhook.id;
}

async function answeredGone(webhookId: bigint): Promise<void> {
  await noteGone(db, webhookId, (await getWebhook(db, "everything", webhookId))?.targetUrl ?? "");
}

async function publish({ keyId }: Owner, events: number, process = 1): Promise<void> {
  await publishEvents(
    db,
    Array.from({ length: events }, () => anEvent({ apiKeyId: keyId, process, userId: "tenant-7" })),
  );
}

const claim = async () => (await claimPending(db, await freshClaimant(db), ALL)).deliveries;

/** Records one attempt of each delivery. */
async function record(deliveries: readonly ClaimedDelivery[], status: number): Promise<void> {
  await recordAttempts(
    db,
    deliveries.map((delivery) => result(delivery, status)),
    NO_WAIT,
  );
}

/** Makes every retry of what waits, until the round is over. */
async function failRetries(): Promise<void> {
  for (;;) {
    const claimant = await freshClaimant(db);
    await db.raw("update retries set run_id = null");
    if ((await adoptRetries(db, claimant.runId)) === 0) return;
    for (const { group } of await assignGroups(db, claimant.runId)) {
      const { deliveries } = await claimGroup(db, claimant, { group, limit: 1_000, excluded: [] });
      await record(deliveries, 503);
    }
  }
}

interface StoredNotice {
  process: number;
  userId: string;
  payload: string;
  webhooks: bigint[];
}

/** Folds, decides on breakers, and answers the notices so far, in the order of their changes. */
async function notices(): Promise<StoredNotice[]> {
  while ((await foldDeltas(db)) > 0);
  await decideBreakers(db, 30);
  expect(imbalance(await readLedger(db))).toBe(0n);
  const found = await rows<Omit<StoredNotice, "webhooks"> & { webhooks: string[] }>(
    db,
    `select process, user_id as "userId", payload,
        array(select webhook_id from all_deliveries d where d.event_id = e.id order by 1) as webhooks
      from events e where process > 10000 and not test order by id`,
  );
  return found.map((notice) => ({ ...notice, webhooks: notice.webhooks.map(BigInt) }));
}

const processesOf = (some: readonly StoredNotice[]) => some.map(({ process }) => process);
/** Each notice and its receivers. */
const sent = async () => (await notices()).map(({ process, webhooks }) => [process, webhooks]);

test("a webhook that fails and recovers causes one notice each, with its health before and after", async () => {
  const admin = await owner();
  const webhookId = await register(admin);
  await updateWebhook(db, "everything", webhookId, { name: "Shop" });
  const failing = await register(admin, WEBHOOK_FAILING);
  const recovered = await register(admin, WEBHOOK_RECOVERED);
  await publish(admin, 3);
  const [first, second, third] = (await claim()).map((each) => [each]);
  await record(first ?? [], 503);
  await notices();
  await record(second ?? [], 500);
  await notices();
  await record(third ?? [], 200);
  const found = await notices();
  expect(found.map(({ process, webhooks }) => [process, webhooks])).toEqual([
    [WEBHOOK_FAILING, [failing]],
    [WEBHOOK_RECOVERED, [recovered]],
  ]);
  const [began, ended] = found.map(({ payload }) => JSON.parse(payload));
  expect(began).toEqual({
    Webhook: {
      Id: Number(webhookId),
      Name: "Shop",
      WebhookProcess: "OrderDispatched",
      Url: expect.stringMatching(/^https:\/\/shop\.example\//),
      Host: "shop.example",
      Application: null,
    },
    HealthBefore: "Healthy",
    Health: "Failing",
    Since: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d$/),
    LastError: "HTTP status 503",
  });
  expect(ended).toMatchObject({
    HealthBefore: "Failing",
    Health: "Degraded",
    FailingSince: began.Since,
    LastError: "HTTP status 500",
  });
});

test("a webhook disabled by its circuit breaker causes one notice with the reason", async () => {
  const admin = await owner();
  const webhookId = await register(admin);
  const subscriber = await register(admin, WEBHOOK_DISABLED);
  await updateWebhook(db, "everything", webhookId, { breaker: BREAKER });
  await publish(admin, 1);
  await record(await claim(), 410);
  await answeredGone(webhookId);
  const found = await notices();
  expect(found.map(({ process, webhooks }) => [process, webhooks])).toEqual([
    [WEBHOOK_DISABLED, [subscriber]],
  ]);
  expect(JSON.parse(found[0]?.payload ?? "")).toMatchObject({
    Webhook: { Id: Number(webhookId) },
    Health: "Failing",
    Reason: "the endpoint answered 410 Gone",
    LastError: "HTTP status 410",
  });
  expect(await notices()).toEqual(found);
});

test("each failed delivery causes one notice, and another one when it fails again", async () => {
  const admin = await owner();
  const webhookId = await register(admin);
  const subscriber = await register(admin, DELIVERY_FAILED);
  await publish(admin, 2);
  const deliveries = await claim();
  await record(deliveries, 503);
  expect(await notices()).toEqual([]);
  await failRetries();
  const found = await notices();
  expect(found).toHaveLength(2);
  expect(found.every(({ process }) => process === DELIVERY_FAILED)).toBe(true);
  expect(found.map(({ webhooks }) => webhooks)).toEqual([[subscriber], [subscriber]]);
  // The user whose event has failed.
  expect(found.map(({ userId }) => userId)).toEqual(["tenant-7", "tenant-7"]);
  const payloads = found.map(({ payload }) => JSON.parse(payload));
  expect(payloads.map(({ DeliveryId }) => DeliveryId).sort()).toEqual(deliveries.map(({ id }) => id).sort());
  const [failed] = payloads;
  expect(failed).toMatchObject({
    Webhook: { Id: Number(webhookId) },
    EventType: "OrderDispatched",
    Attempts: 4,
    Reason: null,
    LastError: "HTTP status 503",
  });
  const [event] = await rows<{ id: string }>(
    db,
    "select event_id as id from deliveries where id = :id::uuid",
    {
      id: failed.DeliveryId,
    },
  );
  expect(failed.EventId).toBe(event?.id);

  expect(await startRound(db, "everything", [failed.DeliveryId], 30)).toHaveLength(1);
  const again = (await claim()).filter(({ id }) => id === failed.DeliveryId);
  await record(again, 502);
  await failRetries();
  expect((await notices()).slice(2).map(({ payload }) => JSON.parse(payload))).toMatchObject([
    { DeliveryId: failed.DeliveryId, Attempts: 8 },
  ]);
});

test("a delivery that fails without an attempt causes a notice with the reason", async () => {
  const admin = await owner();
  await register(admin);
  await register(admin, DELIVERY_FAILED);
  await publish(admin, 3);
  expect(await endBeyond(db, 2, 100)).toBe(1);
  expect((await notices()).map(({ payload }) => JSON.parse(payload))).toMatchObject([
    { Attempts: 0, Reason: "queue full", LastError: null },
  ]);
});

test("a webhook of an app receives notices of its app only; one without an app receives all", async () => {
  const [admin, app, other] = [await owner(), await owner(true), await owner(true)];
  const [ofAdmin, ofApp, ofOther] = [
    await register(admin, WEBHOOK_FAILING),
    await register(app, WEBHOOK_FAILING),
    await register(other, WEBHOOK_FAILING),
  ];
  const about = { admin: await register(admin), app: await register(app), other: await register(other) };
  await publish(admin, 1);
  await record(await claim(), 503);
  const receivers = new Map(
    (await notices()).map(({ payload, webhooks }) => [JSON.parse(payload).Webhook.Id, webhooks]),
  );
  expect(receivers).toEqual(
    new Map([
      [Number(about.admin), [ofAdmin]],
      [Number(about.app), [ofAdmin, ofApp]],
      [Number(about.other), [ofAdmin, ofOther]],
    ]),
  );
});

test("a notice reaches no webhook of the app whose key may not subscribe to the event type concerned", async () => {
  const app = await owner(true);
  const stock = await key(app.appId, [3, WEBHOOK_FAILING]);
  const subscriber = await register(stock, WEBHOOK_FAILING);
  const [orders, levels] = [await register(app), await register(app, 3)];
  await publish(app, 1);
  await publish(app, 1, 3);
  const deliveries = await claim();
  expect(deliveries.map(({ webhook }) => webhook.id).sort()).toEqual([orders, levels].sort());
  await record(deliveries, 503);
  const found = await notices();
  expect(
    found.map(({ payload, webhooks }) => [JSON.parse(payload).Webhook.WebhookProcess, webhooks]),
  ).toEqual([["StockLevelChanged", [subscriber]]]);
});

test("without a subscription of its app, a change stores nothing", async () => {
  const [admin, other] = [await owner(), await owner(true)];
  await register(admin);
  await register(other, WEBHOOK_FAILING);
  await register(other, DELIVERY_FAILED);
  await publish(admin, 1);
  await record(await claim(), 503);
  await failRetries();
  expect(await notices()).toEqual([]);
});

test("ids of failed deliveries are kept only while a webhook subscribes to their notices", async () => {
  const admin = await owner();
  await register(admin);
  const subscriber = await register(admin, DELIVERY_FAILED);
  const kept = async () => {
    await publish(admin, 1);
    await record(await claim(), 503);
    await failRetries();
    const found = await rows<{ ids: string[] | null }>(
      db,
      "delete from rollup_deltas returning failed_ids as ids",
    );
    return found.flatMap(({ ids }) => ids ?? []).length;
  };
  expect(await kept()).toBe(1);
  await deleteWebhook(db, subscriber);
  expect(await kept()).toBe(0);
});

test("the attempts of a notice cause no notice, whatever becomes of them", async () => {
  const admin = await owner();
  const subscribers = [
    await register(admin, WEBHOOK_FAILING),
    await register(admin, WEBHOOK_RECOVERED),
    await register(admin, WEBHOOK_DISABLED),
    await register(admin, DELIVERY_FAILED),
  ];
  const [failing] = subscribers;
  const breaker = { ...BREAKER, failures: 1_000 };
  await updateWebhook(db, "everything", failing as bigint, { breaker });
  await register(admin);
  await publish(admin, 1);
  await record(await claim(), 503);
  const first = await notices();
  expect(processesOf(first)).toEqual([WEBHOOK_FAILING]);
  // The delivery of the notice fails, as does that of the order.
  await record(await claim(), 503);
  expect(await notices()).toEqual(first);
  await failRetries();
  const all = await notices();
  expect(processesOf(all)).toEqual([WEBHOOK_FAILING, DELIVERY_FAILED]);
  expect(JSON.parse(all[1]?.payload ?? "")).toMatchObject({ EventType: "OrderDispatched" });
  await answeredGone(failing as bigint);
  expect(await notices()).toEqual(all);
  const [state] = await rows(db, "select state from webhook_breakers");
  expect(state).toEqual({ state: "disabled" });
  // The notice of the failed delivery has been sent, and recovers nothing.
  await record(await claim(), 200);
  expect(await notices()).toEqual(all);
});

test("test events cause no notice of a failed delivery", async () => {
  const admin = await owner();
  const webhookId = await register(admin);
  await register(admin, DELIVERY_FAILED);
  await queueTestEvent(db, "everything", { apiKeyId: admin.keyId, webhookId, process: 1, payload: "{}" });
  await record(await claim(), 503);
  await failRetries();
  expect(await notices()).toEqual([]);
});

test("processes that fold and decide at once publish each notice once", async () => {
  const admin = await owner();
  const subscriber = await register(admin, WEBHOOK_FAILING);
  const failedSubscriber = await register(admin, DELIVERY_FAILED);
  for (let n = 0; n < 5; n += 1) await register(admin);
  await publish(admin, 2);
  await record(await claim(), 503);
  await failRetries();
  await Promise.all(Array.from({ length: 8 }, () => foldDeltas(db)));
  const found = await sent();
  expect(found.filter(([process]) => process === WEBHOOK_FAILING)).toEqual(
    Array(5).fill([WEBHOOK_FAILING, [subscriber]]),
  );
  expect(found.filter(([process]) => process === DELIVERY_FAILED)).toEqual(
    Array(10).fill([DELIVERY_FAILED, [failedSubscriber]]),
  );
});

test("a change whose notice cannot be stored is not stored either, and both are stored later", async () => {
  const admin = await owner();
  await register(admin, WEBHOOK_FAILING);
  await register(admin);
  await publish(admin, 1);
  await record(await claim(), 503);
  await db.raw("alter table idempotency_keys rename to away");
  await expect(foldDeltas(db)).rejects.toThrow("idempotency_keys");
  await db.raw("alter table away rename to idempotency_keys");
  expect(await rows(db, "select from webhook_health")).toEqual([]);
  expect(processesOf(await notices())).toEqual([WEBHOOK_FAILING]);
});

test("a notice creates the partition of its day", async () => {
  const admin = await owner();
  await register(admin, WEBHOOK_FAILING);
  const webhookId = await register(admin);
  await db.raw(
    `insert into rollup_deltas (minute, webhook_ids, changes, durations_ms)
      values (date_trunc('minute', now()), array[?::bigint], '{0}', '{5}')`,
    [String(webhookId)],
  );
  for (const table of ["deliveries", "attempts", "search_terms", "events"] as const)
    for (const { name } of await listPartitions(db, table)) await db.raw(`drop table ${name}`);
  expect(processesOf(await notices())).toEqual([WEBHOOK_FAILING]);
});

test("the payload of every notice is valid by the schema that the service describes", async () => {
  const admin = await owner(true);
  const webhookId = await register(admin);
  for (const process of [WEBHOOK_FAILING, WEBHOOK_RECOVERED, WEBHOOK_DISABLED, DELIVERY_FAILED])
    await register(admin, process);
  await updateWebhook(db, "everything", webhookId, { breaker: BREAKER });
  await publish(admin, 2);
  const [one, two] = (await claim()).map((each) => [each]);
  await record(one ?? [], 503);
  await failRetries();
  await notices();
  await record(two ?? [], 200);
  await notices();
  await answeredGone(webhookId);
  const found = await notices();
  expect(new Set(processesOf(found))).toEqual(
    new Set([WEBHOOK_FAILING, WEBHOOK_RECOVERED, WEBHOOK_DISABLED, DELIVERY_FAILED]),
  );
  const types = new Map(describeEventTypes().map((type) => [type.number, type]));
  for (const { process, payload } of found) {
    const type = types.get(process);
    const validate = schemaValidator(type?.schema ?? "");
    expect(validate(JSON.parse(payload)), payload).toBe(true);
    // The properties have the order of the sample.
    expect(Object.keys(JSON.parse(payload))).toEqual(Object.keys(JSON.parse(type?.sample ?? "")));
  }
});
