import { Code } from "@connectrpc/connect";
import { expect, onTestFinished, test } from "vitest";
import { BadRequestSchema } from "../../../../gen/google/rpc/error_details_pb.ts";
import { MAX_WAITING_PER_KEY } from "../../../../src/api/services/webhooks/trial-queue.ts";
import { failure } from "../../../support/failure.ts";
import { anOrder, lock, waitingQueries } from "../../../support/grpc-calls.ts";
import { useApi } from "../../../support/test-api.ts";
import { until } from "../../../support/wait.ts";

const api = await useApi();
const { webhooks, events } = api;

const publish = async (orderId: bigint) =>
  (await events.publishEvent(anOrder({ orderId, orderNumber: `SO-${orderId}` }, { userId: "tenant-1" })))
    .eventId;
const get = async (webhookId: bigint) => (await webhooks.getWebhook({ webhookId })).webhook;
const violationOf = async (call: Promise<unknown>) => {
  const refused = await failure(call);
  const [violation] = refused?.findDetails(BadRequestSchema)[0]?.fieldViolations ?? [];
  return [refused?.code, violation?.field, violation?.description];
};

test("a webhook has no filter until one is set, keeps it with other changes, and loses it by an empty one", async () => {
  const webhookId = await api.register();
  expect((await get(webhookId))?.filter).toBeUndefined();
  const filter = 'event.carrier == "DHL" && user_id != "test"';
  const { webhook } = await webhooks.updateWebhook({ webhookId, filter });
  expect(webhook?.filter).toBe(filter);
  await webhooks.updateWebhook({ webhookId, name: "shop" });
  expect((await get(webhookId))?.filter).toBe(filter);
  const revision = (await get(webhookId))?.revision;
  await webhooks.updateWebhook({ webhookId, filter });
  expect((await get(webhookId))?.revision).toBe(revision);
  await webhooks.updateWebhook({ webhookId, filter: " " });
  expect((await get(webhookId))?.filter).toBeUndefined();
});

test("a filter that is not valid for the event type is refused with its fault, when set and when tried", async () => {
  const webhookId = await api.register();
  const filter = "event.kind == 1";
  const expected = [
    Code.InvalidArgument,
    "filter",
    "at character 6: OrderDispatched has no field kind; its fields: order_id, order_number, dispatched_at, carrier, tracking_number, lines",
  ];
  expect(await violationOf(webhooks.updateWebhook({ webhookId, filter }))).toEqual(expected);
  expect(await violationOf(webhooks.tryWebhookFilter({ webhookId, filter }))).toEqual(expected);
  expect((await get(webhookId))?.filter).toBeUndefined();
});

test("a filter with a regular expression that RE2 does not know is refused, and the stored one stays", async () => {
  const webhookId = await api.register();
  await webhooks.updateWebhook({ webhookId, filter: "true" });
  const filter = 'event.order_number.matches("^(?!TEST-).*$")';
  const refused = await violationOf(webhooks.updateWebhook({ webhookId, filter }));
  expect(refused.slice(0, 2)).toEqual([Code.InvalidArgument, "filter"]);
  expect(refused[2]).toContain("the regular expression ^(?!TEST-).*$ is not valid");
  expect(await violationOf(webhooks.tryWebhookFilter({ webhookId, filter }))).toEqual(refused);
  expect((await get(webhookId))?.filter).toBe("true");
});

test("a filter is tried on the latest events of the webhook's type, newest first, and nothing is stored", async () => {
  const webhookId = await api.register();
  const before = await get(webhookId);
  await webhooks.sendTestEvent({ webhookId });
  const ids: string[] = [];
  for (let orderId = 1n; orderId <= 30n; orderId += 1n) ids.push(await publish(orderId));
  const tried = await webhooks.tryWebhookFilter({ webhookId, filter: "12 / (event.order_id - 1) >= 2" });
  expect([tried.examined, tried.matched, tried.failed]).toEqual([30, 6, 1]);
  expect(tried.events.map(({ eventId }) => eventId)).toEqual(ids.slice(10).reverse());
  expect(tried.events[0]).toMatchObject({ sent: false, userId: "tenant-1", subject: "SO-30" });
  expect(tried.events[0]?.error).toBeUndefined();
  const all = await webhooks.tryWebhookFilter({ webhookId, filter: "100 / (event.order_id - 30) < 1000" });
  expect(all.events[0]).toMatchObject({ sent: true, error: expect.stringContaining("divide by zero") });
  expect(await get(webhookId)).toEqual(before);
});

test("trials of filters wait for each other, and leave connections to the database for other calls", async () => {
  const webhookId = await api.register();
  const release = await lock(api, "events");
  onTestFinished(release);
  const trials = Array.from({ length: 20 }, () => webhooks.tryWebhookFilter({ webhookId, filter: "true" }));
  await expect.poll(() => waitingQueries(api)).toBe(2);
  for (let n = 0; n < 20; n += 1) expect((await get(webhookId))?.id).toBe(webhookId);
  expect(await waitingQueries(api)).toBe(2);
  await release();
  expect(await Promise.all(trials)).toHaveLength(20);
});

test("of one key, more trials of filters than may wait are refused, and cancelled ones make room", async () => {
  const webhookId = await api.register();
  const cancel = new AbortController();
  const trial = (signal?: AbortSignal) =>
    webhooks.tryWebhookFilter({ webhookId, filter: "true" }, signal ? { signal } : {});
  const release = await lock(api, "events");
  onTestFinished(release);
  const running = [trial(), trial()];
  await expect.poll(() => waitingQueries(api)).toBe(2);
  const many = Array.from({ length: MAX_WAITING_PER_KEY + 1 }, () => failure(trial(cancel.signal)));
  // Only one cannot wait, and ends before the signal.
  const refused = await Promise.race(many);
  expect(refused?.code).toBe(Code.ResourceExhausted);
  expect(refused?.rawMessage).toContain(`${MAX_WAITING_PER_KEY} filter trials`);
  cancel.abort();
  const codes = (await Promise.all(many)).map((error) => error?.code);
  expect(codes.filter((code) => code === Code.Canceled)).toHaveLength(MAX_WAITING_PER_KEY);
  // The service learns of a cancelled call a moment later.
  const again = until(() => trial().catch(() => undefined));
  await release();
  expect(await again).toMatchObject({ failed: 0 });
  await Promise.all(running);
});
