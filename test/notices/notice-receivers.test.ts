import { expect, test } from "vitest";
import { queueTestEvent } from "../../src/events/test-events.ts";
import { foldDeltas } from "../../src/maintenance/fold.ts";
import { cancelFirst } from "../../src/queue/deleted-webhooks.ts";
import { listPartitions, PARTITIONED } from "../../src/schema/partitions.ts";
import { deleteWebhook } from "../../src/webhooks/webhook-deletion.ts";
import { updateWebhook } from "../../src/webhooks/webhook-update.ts";
import { DELIVERY_FAILED, EVERY_NOTICE, useNotices, WEBHOOK_FAILING } from "./notice-parts.ts";

const shared = await useNotices();
const { db, BREAKER, key, app, register, answeredGone } = shared;
const { publish, attemptAll, failRetries, notices, sent, admin } = shared;

test("a webhook of an app receives notices of its app only; one without an app receives all", async () => {
  const owners = [admin(), await key(await app()), await key(await app())];
  const subscribers: bigint[] = [];
  const about: bigint[] = [];
  for (const owner of owners) {
    subscribers.push(await register(owner, WEBHOOK_FAILING));
    about.push(await register(owner));
  }
  await publish(admin(), 1);
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
  await register(admin());
  for (const process of [WEBHOOK_FAILING, DELIVERY_FAILED]) await register(other, process);
  await publish(admin(), 1);
  await attemptAll(503);
  await failRetries();
  expect(await notices()).toEqual([]);
});

test("ids of failed deliveries are kept only while a webhook subscribes to their notices", async () => {
  await register(admin());
  const subscriber = await register(admin(), DELIVERY_FAILED);
  const kept = async () => {
    await publish(admin(), 1);
    await attemptAll(503);
    await failRetries();
    return (await db("rollup_deltas").delete().returning("failed_ids")).flatMap(
      (row) => row.failed_ids ?? [],
    );
  };
  expect(await kept()).toHaveLength(1);
  await deleteWebhook(db, subscriber, cancelFirst);
  expect(await kept()).toHaveLength(0);
});

test("the attempts of a notice cause no notice, whatever becomes of them", async () => {
  const subscribers: bigint[] = [];
  for (const process of EVERY_NOTICE) subscribers.push(await register(admin(), process));
  const failing = subscribers[0] as bigint;
  await updateWebhook(db, "everything", failing, { breaker: BREAKER });
  await register(admin());
  await publish(admin(), 1);
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
  const webhookId = await register(admin());
  await register(admin(), DELIVERY_FAILED);
  await queueTestEvent(db, "everything", { apiKeyId: admin(), webhookId, process: 1, payload: "{}" });
  await attemptAll(503);
  await failRetries();
  expect(await notices()).toEqual([]);
});

test("processes that fold and decide at once publish each notice once", async () => {
  const subscribers = [await register(admin(), WEBHOOK_FAILING), await register(admin(), DELIVERY_FAILED)];
  for (let n = 0; n < 5; n += 1) await register(admin());
  await publish(admin(), 2);
  await attemptAll(503);
  await failRetries();
  await Promise.all(Array.from({ length: 8 }, () => foldDeltas(db)));
  const found = (await sent()).sort(([one], [other]) => Number(one) - Number(other));
  const failing = Array(5).fill([WEBHOOK_FAILING, subscribers.slice(0, 1)]);
  expect(found).toEqual([...failing, ...Array(10).fill([DELIVERY_FAILED, subscribers.slice(1)])]);
});

test("a change whose notice cannot be stored is not stored either, and both are stored later", async () => {
  const subscriber = await register(admin(), WEBHOOK_FAILING);
  await register(admin());
  await publish(admin(), 1);
  await attemptAll(503);
  await db.raw("alter table idempotency_keys rename to away");
  await expect(foldDeltas(db)).rejects.toThrow("idempotency_keys");
  await db.raw("alter table away rename to idempotency_keys");
  expect(await db("webhook_health")).toEqual([]);
  expect(await sent()).toEqual([[WEBHOOK_FAILING, [subscriber]]]);
});

test("a notice creates the partition of its day", async () => {
  const subscriber = await register(admin(), WEBHOOK_FAILING);
  const webhookId = await register(admin());
  await db.raw(
    `insert into rollup_deltas (minute, webhook_ids, changes, durations_ms)
      values (date_trunc('minute', now()), array[?::bigint], '{0}', '{5}')`,
    [String(webhookId)],
  );
  for (const table of PARTITIONED)
    for (const { name } of await listPartitions(db, table)) await db.raw(`drop table ${name}`);
  expect(await sent()).toEqual([[WEBHOOK_FAILING, [subscriber]]]);
});
