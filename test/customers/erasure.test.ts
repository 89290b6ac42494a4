import { Code } from "@connectrpc/connect";
import { beforeEach, expect, onTestFinished, test } from "vitest";
import { AuditAction, AuditActionSchema } from "../../gen/webhook/v1/audit_pb.ts";
import { revokeKey } from "../../src/app/revoke-key.ts";
import { publishEvents } from "../../src/events/publish.ts";
import { customerErasureJob } from "../../src/maintenance/customer-erasure.ts";
import { claim } from "../queue/queue.ts";
import { anEvent } from "../support/new-event.ts";
import { expectRefused } from "../support/refusals.ts";
import { startTestApi, useApi } from "../support/test-api.ts";
import { eventually } from "../support/wait.ts";
import { customerKey, eraseAll, publishFor } from "./customer-parts.ts";

const api = await useApi();
const { db } = api.context;
const { customers } = api;
beforeEach(() => api.empty());

const erase = async (customer = "acme") => (await customers.eraseCustomer({ customer })).customer?.erasure;
const erasureOf = async (customer = "acme") => (await customers.getCustomer({ customer })).customer?.erasure;
/** Runs the job of maintenance until the erasure has finished. */
const finish = (customer = "acme") =>
  eventually(async () => {
    await customerErasureJob(revokeKey).run({ db }, new AbortController().signal);
    expect((await erasureOf(customer))?.finished).toBeDefined();
  });
const payloads = (userId: string) => db("events").where({ user_id: userId }).pluck("payload");

test("an erasure removes webhooks, keys, payloads and open deliveries of the customer, counts them, and leaves those of others", async () => {
  const [own, other] = [await customerKey(api, "acme"), await customerKey(api, "other")];
  const second = await customerKey(api, "acme");
  await api.register();
  const ids = [await api.register({ key: own.secret }), await api.register({ key: second.secret })];
  const kept = await api.register({ key: other.secret });
  await publishFor(db, "acme", "acme", "other");
  const open = await db("queue")
    .whereIn("webhook_id", ids.map(String))
    .orWhereIn("event_id", db("events").select("id").where({ user_id: "acme" }));
  expect(await erase()).toMatchObject({ webhooks: 0n, apiKeys: 0n, payloads: 0n, deliveries: 0n });
  expect((await erasureOf())?.finished).toBeUndefined();
  await finish();
  const erased = { webhooks: 2n, apiKeys: 2n, payloads: 2n, deliveries: BigInt(open.length) };
  expect(await erasureOf()).toMatchObject(erased);
  expect(await payloads("acme")).toEqual([null, null]);
  expect(await payloads("other")).toEqual(["{}"]);
  expect(await db("webhooks").where({ customer: "acme", deleted: null })).toEqual([]);
  expect((await api.webhooks.getWebhook({ webhookId: kept })).webhook?.paused).toBeUndefined();
  for (const { secret } of [own, second])
    await expectRefused(api.register({ key: secret }), Code.Unauthenticated);
  await api.register({ key: other.secret });
  const left = await claim(db);
  expect(left.every(({ webhook }) => !ids.includes(webhook.id))).toBe(true);
  const events = new Set(left.map(({ eventId }) => eventId));
  expect(
    await db("events")
      .whereIn("id", [...events])
      .where({ user_id: "acme" }),
  ).toEqual([]);
});

test("the entries of what an erasure removes name who has started it", async () => {
  const own = await customerKey(api, "acme");
  const webhookId = await api.register({ key: own.secret });
  const { id, secret } = await api.key({ name: "operator" });
  await api.as(secret).customers.eraseCustomer({ customer: "acme" });
  await finish();
  const { entries } = await api.audit.listAuditEntries({ apiKeyId: id });
  const found = entries.map(
    ({ action, targetId }) => `${AuditActionSchema.value[action]?.localName} ${targetId}`,
  );
  expect(found.sort()).toEqual([
    `API_KEY_REVOKED ${own.id}`,
    "CUSTOMER_ERASED acme",
    `WEBHOOK_DELETED ${webhookId}`,
  ]);
});

test("an event of a publish that is held open during the erasure is erased, and the erasure waits for it", async () => {
  await publishFor(db, "acme");
  const trx = await db.transaction();
  onTestFinished(async () => {
    if (!trx.isCompleted()) await trx.rollback();
  });
  await publishEvents(trx, [anEvent({ userId: "acme" })]);
  await erase();
  expect(await eraseAll(db, "acme")).toBe("waiting");
  expect(await eraseAll(db, "acme")).toBe("waiting");
  const waiting = await erasureOf();
  expect([waiting?.payloads, waiting?.finished]).toEqual([1n, undefined]);
  await trx.commit();
  await finish();
  expect(await erasureOf()).toMatchObject({ payloads: 2n });
  expect(await payloads("acme")).toEqual([null, null]);
});

test("a transaction that is open and publishes later, before it has an id, is waited for, too", async () => {
  await publishFor(db, "acme");
  await erase();
  const trx = await db.transaction();
  onTestFinished(async () => {
    if (!trx.isCompleted()) await trx.rollback();
  });
  await trx.raw("select 1");
  expect(await eraseAll(db, "acme")).toBe("waiting");
  expect(await eraseAll(db, "acme")).toBe("waiting");
  await publishEvents(trx, [anEvent({ userId: "acme" })]);
  await trx.commit();
  await finish();
  expect(await payloads("acme")).toEqual([null, null]);
});

test("keys and webhooks that are made while an erasure goes on are removed, too", async () => {
  const trx = await db.transaction();
  onTestFinished(async () => {
    if (!trx.isCompleted()) await trx.rollback();
  });
  await publishEvents(trx, [anEvent({ userId: "acme" })]);
  await customerKey(api, "acme");
  await erase();
  expect(await eraseAll(db, "acme")).toBe("waiting");
  const late = await customerKey(api, "acme");
  await api.register({ key: late.secret });
  await trx.commit();
  await finish();
  expect(await erasureOf()).toMatchObject({ apiKeys: 2n, webhooks: 1n, payloads: 1n });
  await expectRefused(api.register({ key: late.secret }), Code.Unauthenticated);
});

test("a second call while an erasure goes on changes nothing, and one afterwards starts anew", async () => {
  await publishFor(db, "acme");
  const first = await erase();
  expect(await erase()).toEqual(first);
  await finish();
  await publishFor(db, "acme");
  expect(await payloads("acme")).toEqual(expect.arrayContaining(["{}"]));
  const anew = await erase();
  expect([anew?.payloads, anew?.finished]).toEqual([0n, undefined]);
  await finish();
  expect(await erasureOf()).toMatchObject({ payloads: 1n });
  const { entries } = await api.audit.listAuditEntries({ actions: [AuditAction.CUSTOMER_ERASED] });
  expect(entries).toHaveLength(2);
});

test("of several processes, one works on an erasure at a time, and another goes on after it", async () => {
  const other = await startTestApi({ databaseUrl: api.databaseUrl });
  onTestFinished(() => other.stop());
  await publishFor(db, ...Array.from({ length: 40 }, () => "acme"));
  await erase();
  await db.transaction(async (trx) => {
    await trx("customers").where({ id: "acme" }).forNoKeyUpdate();
    expect(await eraseAll(other.context.db, "acme")).toBe("busy");
  });
  await Promise.all(
    [db, other.context.db].flatMap((each) => [eraseAll(each, "acme"), eraseAll(each, "acme")]),
  );
  await finish();
  expect(await erasureOf()).toMatchObject({ payloads: 40n });
});

test("what a customer does after its erasure has finished stays", async () => {
  await publishFor(db, "acme");
  await erase();
  await finish();
  await publishFor(db, "acme");
  const { secret } = await customerKey(api, "acme");
  await api.register({ key: secret });
  await customerErasureJob(revokeKey).run({ db }, new AbortController().signal);
  expect((await payloads("acme")).filter((payload) => payload !== null)).toHaveLength(1);
  await api.register({ key: secret });
});
