import { Code } from "@connectrpc/connect";
import { expect, onTestFinished, test } from "vitest";
import { BadRequestSchema } from "../../../gen/google/rpc/error_details_pb.ts";
import { SLOWEST_FILTER } from "../../filters/attacks.ts";
import { anOrder, lock, waitingQueries } from "../../support/grpc-calls.ts";
import { expectRefused } from "../../support/refusals.ts";
import { ONLY, useApi } from "../../support/test-api.ts";

const api = await useApi();
const { webhooks, events } = api;

const publish = async (orderId: bigint) => {
  const order = { orderId, orderNumber: `SO-${orderId}` };
  return (await events.publishEvent(anOrder(order, { userId: "tenant-1" }))).eventId;
};
const get = async (webhookId: bigint) => (await webhooks.getWebhook({ webhookId })).webhook;

test("a webhook has no filter until one is set, keeps it with other changes, and loses it by an empty one", async () => {
  const webhookId = await api.register();
  expect((await get(webhookId))?.filter).toBeUndefined();
  const filter = 'event.carrier == "DHL" && user_id != "test"';
  const { webhook } = await webhooks.updateWebhook({ webhookId, filter });
  expect(webhook?.filter).toBe(filter);
  await webhooks.updateWebhook({ webhookId, name: "shop" });
  await webhooks.updateWebhook({ webhookId, filter });
  expect(await get(webhookId)).toMatchObject({ filter, revision: 3n });
  await webhooks.updateWebhook({ webhookId, filter: " " });
  expect((await get(webhookId))?.filter).toBeUndefined();
});

test.each([
  [
    "event.kind == 1",
    /^at character 6: OrderDispatched has no field kind; its fields: order_id, order_number, dispatched_at, carrier, tracking_number, lines$/,
  ],
  ['event.order_number.matches("^(?!TEST-).*$")', /the regular expression \^\(\?!TEST-\)\.\*\$ is not valid/],
])(
  "the filter %s is refused with its fault when set and when tried, and the stored one stays",
  async (filter, fault) => {
    const webhookId = await api.register();
    await webhooks.updateWebhook({ webhookId, filter: "true" });
    for (const call of [webhooks.updateWebhook, webhooks.tryWebhookFilter]) {
      const refused = await expectRefused(call({ webhookId, filter }), Code.InvalidArgument);
      const [violation] = refused.findDetails(BadRequestSchema)[0]?.fieldViolations ?? [];
      expect(violation).toMatchObject({ field: "filter", description: expect.stringMatching(fault) });
    }
    expect((await get(webhookId))?.filter).toBe("true");
  },
);

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

test("trials of a slow filter by one key delay neither calls of another key nor its trials", async () => {
  const webhookId = await api.register();
  for (let orderId = 1_001n; orderId <= 1_010n; orderId += 1n) await publish(orderId);
  const reader = await api.key({ permissions: ONLY.read });
  const attacker = api.as(reader.secret).webhooks;
  const trials = Array.from({ length: 10 }, () =>
    attacker.tryWebhookFilter({ webhookId, filter: SLOWEST_FILTER }),
  );
  let ended = 0;
  for (const trial of trials) trial.then(() => (ended += 1));
  for (let n = 0; n < 5; n += 1) expect((await get(webhookId))?.id).toBe(webhookId);
  expect((await webhooks.tryWebhookFilter({ webhookId, filter: "event.order_id > 1000" })).matched).toBe(10);
  expect(ended).toBeLessThan(trials.length);
  for (const trial of trials)
    expect(await trial).toMatchObject({
      examined: 1,
      failed: 1,
      events: [{ sent: true, error: expect.stringMatching(/^takes longer than the 50 ms allowed/) }],
    });
});

test("trials of filters wait for each other, and leave connections to the database for other calls", async () => {
  const webhookId = await api.register();
  const release = await lock(api, "events");
  onTestFinished(release);
  const trial = () => webhooks.tryWebhookFilter({ webhookId, filter: "true" });
  // Trials that wait longer than the service's time limit for the database fail.
  const trials = Promise.allSettled(Array.from({ length: 20 }, trial));
  await expect.poll(() => waitingQueries(api)).toBe(1);
  expect((await get(webhookId))?.id).toBe(webhookId);
  await release();
  await trials;
  expect(await trial()).toMatchObject({ failed: 0 });
});
