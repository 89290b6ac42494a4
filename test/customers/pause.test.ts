import { Code } from "@connectrpc/connect";
import { beforeEach, expect, test } from "vitest";
import { AuditAction } from "../../gen/webhook/v1/audit_pb.ts";
import { updateWebhook } from "../../src/webhooks/webhook-update.ts";
import { decided, letPass, SETTINGS } from "../breakers/breakers.ts";
import { claim, record, SPACING } from "../queue/queue.ts";
import { expectRefused } from "../support/refusals.ts";
import { storeDeliveries } from "../support/stored-deliveries.ts";
import { freshUrl, useApi } from "../support/test-api.ts";
import { customerKey } from "./customer-parts.ts";

const api = await useApi();
const { db } = api.context;
const { webhooks, customers } = api;
beforeEach(() => api.empty());

const pause = (customer = "acme") => customers.pauseCustomer({ customer });
const resume = (customer = "acme") => customers.resumeCustomer({ customer });
const registered = async (customer = "acme") =>
  api.register({ key: (await customerKey(api, customer)).secret });
const isPaused = async (webhookId: bigint) =>
  (await webhooks.getWebhook({ webhookId })).webhook?.paused !== undefined;
const claimed = async () => (await claim(db)).map(({ webhook }) => webhook.id);

test("all webhooks of a paused customer wait, and go on when it is resumed; those of others go on", async () => {
  const [one, two, other] = [await registered(), await registered(), await registered("other")];
  await storeDeliveries(
    db,
    [one, two, other].map((webhookId) => ({ webhookId })),
  );
  expect((await pause()).customer?.paused).toBeDefined();
  expect(await claimed()).toEqual([other]);
  const { customer } = await resume();
  expect(customer?.paused).toBeUndefined();
  expect((await claimed()).sort()).toEqual([one, two]);
});

test("webhooks that users have paused themselves stay paused, also those paused meanwhile", async () => {
  const [own, later, free] = [await registered(), await registered(), await registered()];
  await webhooks.pauseWebhook({ webhookId: own });
  await pause();
  await webhooks.pauseWebhook({ webhookId: later });
  for (const id of [own, later, free]) expect(await isPaused(id)).toBe(true);
  await resume();
  expect(await Promise.all([own, later, free].map(isPaused))).toEqual([true, true, false]);
  await webhooks.resumeWebhook({ webhookId: later });
  expect(await isPaused(later)).toBe(false);
});

test("a webhook is not resumed while its customer is paused, and other settings change", async () => {
  const [own, free] = [await registered(), await registered()];
  await webhooks.pauseWebhook({ webhookId: own });
  await pause();
  for (const webhookId of [own, free]) {
    for (const call of [
      () => webhooks.resumeWebhook({ webhookId }),
      () => webhooks.updateWebhook({ webhookId, paused: false }),
    ])
      await expectRefused(call(), Code.FailedPrecondition, "the operator resumes them with ResumeCustomer");
    await webhooks.updateWebhook({ webhookId, name: "Shop", url: freshUrl() });
    expect(await isPaused(webhookId)).toBe(true);
  }
  await resume();
  expect([await isPaused(own), await isPaused(free)]).toEqual([true, false]);
});

test("new webhooks of a paused customer are made paused, whichever way they are made, and resumed with it", async () => {
  const { secret } = await customerKey(api, "acme");
  await pause();
  const { endpoints } = api.as(secret);
  const { endpoint } = await endpoints.createEndpoint({ processes: [1, 2], url: freshUrl() });
  const target = { case: "endpointId" as const, value: endpoint?.id as string };
  const changed = await endpoints.updateEndpoint({ target, addProcesses: [3] });
  const ids = [
    await api.register({ key: secret }),
    ...(changed.endpoint?.webhooks ?? []).map(({ id }) => id),
  ];
  expect(await Promise.all(ids.map(isPaused))).toEqual(Array(4).fill(true));
  expect(await isPaused(await api.register())).toBe(false);
  await resume();
  expect(await Promise.all(ids.map(isPaused))).toEqual(Array(4).fill(false));
});

test("a pause and registrations at the same time leave no webhook of the customer that is not paused", async () => {
  const keys = await Promise.all([1, 2, 3].map(() => customerKey(api, "acme")));
  await Promise.all([
    ...Array.from({ length: 12 }, (_, n) => api.register({ key: keys[n % 3]?.secret as string })),
    pause(),
    ...Array.from({ length: 12 }, (_, n) => api.register({ key: keys[n % 3]?.secret as string })),
  ]);
  expect(await db("webhooks").where({ customer: "acme" }).whereNotNull("paused")).toHaveLength(24);
});

test("a pause and changes of its webhooks at the same time leave all paused", async () => {
  const ids = await Promise.all(Array.from({ length: 6 }, () => registered()));
  for (const webhookId of ids) await webhooks.pauseWebhook({ webhookId });
  await Promise.allSettled([
    ...ids.map((webhookId) => webhooks.resumeWebhook({ webhookId })),
    pause(),
    ...ids.map((webhookId) => webhooks.resumeWebhook({ webhookId })),
  ]);
  expect(await db("webhooks").where({ customer: "acme" }).whereNull("paused")).toEqual([]);
});

test("an open breaker stays open and goes on with probes, and one that closes leaves its webhook to the customer", async () => {
  const id = await registered();
  await updateWebhook(db, "everything", id, { breaker: SETTINGS });
  await storeDeliveries(
    db,
    Array.from({ length: 5 }, () => ({ webhookId: id })),
  );
  const failing = await claim(db, undefined, 3);
  await record(db, failing.slice(0, 2), 503, SPACING);
  await decided(db);
  await letPass(db, SETTINGS.failingSeconds);
  await record(db, failing.slice(2), 503, SPACING);
  expect(await decided(db)).toMatchObject([{ webhookId: id, state: "open" }]);
  await pause();
  await letPass(db, 300);
  await decided(db);
  const probe = await claim(db);
  expect(probe).toHaveLength(1);
  await record(db, probe, 200, SPACING);
  expect(await decided(db)).toMatchObject([{ webhookId: id, state: "closed" }]);
  expect([await claimed(), await isPaused(id)]).toEqual([[], true]);
  await resume();
  expect([await claimed(), await isPaused(id)]).toEqual([[id], false]);
});

test("a second pause and a second resumption change nothing, and each change has an entry with the number of webhooks", async () => {
  const id = await registered();
  await registered();
  const { customer } = await pause();
  const revision = async () => (await webhooks.getWebhook({ webhookId: id })).webhook?.revision;
  const before = await revision();
  expect((await pause()).customer?.paused).toEqual(customer?.paused);
  expect(await revision()).toBe(before);
  await resume();
  await resume();
  const { entries } = await api.audit.listAuditEntries({ targetId: "acme" });
  const count = (entry: (typeof entries)[number]) =>
    entry.changes.find(({ field }) => field === "webhooks")?.after;
  expect(entries.map((entry) => [entry.action, count(entry)])).toEqual([
    [AuditAction.CUSTOMER_RESUMED, "2"],
    [AuditAction.CUSTOMER_PAUSED, "2"],
  ]);
});
