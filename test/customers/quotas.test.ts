import { Code } from "@connectrpc/connect";
import { afterAll, beforeEach, describe, expect, test } from "vitest";
import { ErrorInfoSchema } from "../../gen/google/rpc/error_details_pb.ts";
import { claimPending } from "../../src/queue/claims.ts";
import { endBeyondQuotas } from "../../src/queue/endings.ts";
import { readWaiting } from "../../src/queue/waiting.ts";
import { ALL, freshClaimant } from "../queue/queue.ts";
import { failure } from "../support/failure.ts";
import { anOrder } from "../support/grpc-calls.ts";
import { expectRefused } from "../support/refusals.ts";
import { idAt, storeDeliveries } from "../support/stored-deliveries.ts";
import { freshUrl, startTestApi, useApi } from "../support/test-api.ts";
import { customerKey } from "./customer-parts.ts";

const api = await useApi();
const { db } = api.context;
/** Another server on the same database, as another process would be. */
const other = await startTestApi({ databaseUrl: api.databaseUrl });
afterAll(() => other.stop());
beforeEach(() => api.empty());

const limit = (quotas: object, customer = "acme") => api.customers.updateCustomer({ customer, quotas });
const event = () => anOrder({}, { userId: "acme" });
const metadataOf = (error: Awaited<ReturnType<typeof expectRefused>>) =>
  error.findDetails(ErrorInfoSchema)[0]?.metadata;

describe("a customer's quota of webhooks", () => {
  test("holds over all its keys, processes and ways to register, and no other's webhooks count", async () => {
    await limit({ webhooks: 3 });
    const [one, two] = [await customerKey(api, "acme"), await customerKey(api, "acme")];
    await api.register({ key: (await customerKey(api, "other")).secret });
    await api.register();
    await api.register({ key: one.secret });
    const { endpoint } = await other
      .as(two.secret)
      .endpoints.createEndpoint({ processes: [1, 2], url: freshUrl() });
    const endpointId = endpoint?.id as string;
    const { endpoints } = other.as(one.secret);
    for (const call of [
      () => api.register({ key: two.secret }),
      () => endpoints.createEndpoint({ processes: [1], url: freshUrl() }),
      () =>
        endpoints.updateEndpoint({ target: { case: "endpointId", value: endpointId }, addProcesses: [3] }),
    ]) {
      const error = await expectRefused(
        call(),
        Code.FailedPrecondition,
        "the customer may have 3 webhooks over all its API keys, and would have 4",
        "TOO_MANY_WEBHOOKS",
      );
      expect(metadataOf(error)).toMatchObject({ quota: "customer_webhooks", limit: "3" });
    }
    await api.revoke(one.id);
    await api.register({ key: two.secret });
    await api.register({ key: (await customerKey(api, "other")).secret });
  });

  test("is not exceeded by registrations at the same time, with different keys and in two processes", async () => {
    await limit({ webhooks: 5 });
    const keys = await Promise.all(Array.from({ length: 4 }, () => customerKey(api, "acme")));
    const calls = Array.from({ length: 12 }, (_, n) =>
      failure((n % 2 === 0 ? api : other).register({ key: keys[n % 4]?.secret as string })),
    );
    expect((await Promise.all(calls)).filter((error) => error === undefined)).toHaveLength(5);
    expect(await db("webhooks").where({ customer: "acme" })).toHaveLength(5);
  });

  test("that is lower than what exists leaves it, and a transfer between its keys is possible", async () => {
    const [from, to] = [await customerKey(api, "acme"), await customerKey(api, "acme")];
    await api.register({ key: from.secret });
    await api.register({ key: from.secret });
    await limit({ webhooks: 1 });
    const webhooks = { case: "transferToKeyId" as const, value: to.id };
    const { webhooksTransferred } = await api.keys.revokeApiKey({ apiKeyId: from.id, webhooks });
    expect(webhooksTransferred).toBe(2);
  });
});

describe("a customer's quota of events per second", () => {
  test("holds over all its keys in every process, beside those of the keys, and for no other customer", async () => {
    await limit({ eventsPerSecond: 1 });
    const [one, two] = [await customerKey(api, "acme"), await customerKey(api, "acme")];
    await api.as(one.secret).events.publishEvent(event());
    const error = await expectRefused(
      other.as(two.secret).events.publishEvent(event()),
      Code.ResourceExhausted,
      /^the customer's quota of 1 events per second is used up; publish the event again in \d+ ms, or ask the operator/,
      "QUOTA_EXCEEDED",
    );
    expect(metadataOf(error)).toMatchObject({ quota: "customer_events_per_second", limit: "1" });
    // The operator's key publishes for anyone.
    await api.events.publishEvent(event());
    await limit({});
    await other.as(two.secret).events.publishEvent(event());
  });

  test("bounds what is published at the same time", async () => {
    await limit({ eventsPerSecond: 20 });
    const keys = await Promise.all([1, 2, 3, 4].map(() => customerKey(api, "acme")));
    const started = await db.raw("select clock_timestamp() as at");
    const calls = Array.from({ length: 120 }, (_, n) =>
      failure((n % 2 === 0 ? api : other).as(keys[n % 4]?.secret).events.publishEvent(event())),
    );
    const published = (await Promise.all(calls)).filter((error) => error === undefined).length;
    const bucket = await db("customer_event_quotas").where({ customer: "acme" }).first();
    const grown = (20 * (bucket.at.getTime() - started.rows[0].at.getTime())) / 1_000;
    expect(published).toBeGreaterThanOrEqual(20);
    expect(published).toBeLessThanOrEqual(20 + grown + 1);
  });
});

describe("a customer's quota of pending deliveries", () => {
  const pending = (webhookId: bigint) =>
    db("queue")
      .where({ webhook_id: String(webhookId) })
      .orderBy("id")
      .pluck("id");

  test("keeps the oldest over all its webhooks, and fails the others as queue full", async () => {
    await limit({ pendingDeliveries: 5 });
    const { secret } = await customerKey(api, "acme");
    const [one, two] = [await api.register({ key: secret }), await api.register({ key: secret })];
    const others = [
      await api.register(),
      await api.register({ key: (await customerKey(api, "other")).secret }),
    ];
    const at = new Date();
    const made = [one, two, one, two, one, two, one, two].map((webhookId, n) => ({
      webhookId,
      id: idAt(at, n),
    }));
    await storeDeliveries(db, made);
    await storeDeliveries(
      db,
      others.flatMap((webhookId) => Array.from({ length: 9 }, () => ({ webhookId }))),
    );
    await storeDeliveries(db, [{ webhookId: one, state: "retrying" }]);
    expect(await endBeyondQuotas(db, 100)).toBe(3);
    const kept = made.slice(0, 5).map(({ id }) => id);
    expect([...(await pending(one)), ...(await pending(two))].sort()).toEqual(kept);
    const failed = await db("deliveries").orderBy("id").select("id", "outcome", "reason");
    expect(failed).toEqual(made.slice(5).map(({ id }) => ({ id, outcome: "failed", reason: "queue full" })));
    expect(await endBeyondQuotas(db, 100)).toBe(0);
    for (const webhookId of others) expect(await pending(webhookId)).toHaveLength(9);
  });

  test("bounds what replays and breakers queue", async () => {
    const { secret } = await customerKey(api, "acme");
    const [one, two] = [await api.register({ key: secret }), await api.register({ key: secret })];
    await storeDeliveries(
      db,
      [one, one, two].map((webhookId) => ({ webhookId })),
    );
    const room = async () => (await readWaiting(db, one, { limit: 0 })).customerRoom;
    expect(await room()).toBeNull();
    await limit({ pendingDeliveries: 5 });
    expect(await room()).toBe(2);
    await limit({ pendingDeliveries: 2 });
    expect(await room()).toBe(0);
  });

  test("leaves claimed deliveries and test deliveries, and takes as many at a time as told", async () => {
    const { secret } = await customerKey(api, "acme");
    const webhookId = await api.register({ key: secret });
    const at = new Date();
    const made = Array.from({ length: 6 }, (_, n) => ({ webhookId, id: idAt(at, n) }));
    await storeDeliveries(db, made);
    await claimPending(db, await freshClaimant(db), { ...ALL, limit: 3 });
    await db("webhooks")
      .where({ id: webhookId })
      .update({ test_delivery: made[5]?.id as string });
    await limit({ pendingDeliveries: 1 });
    expect(await endBeyondQuotas(db, 1)).toBe(1);
    expect(await endBeyondQuotas(db, 10)).toBe(1);
    const left = made.filter((_, n) => n < 3 || n === 5).map(({ id }) => id);
    expect(await pending(webhookId)).toEqual(left);
  });
});
