import { setTimeout as wait } from "node:timers/promises";
import { durationMs } from "@bufbuild/protobuf/wkt";
import { Code } from "@connectrpc/connect";
import { afterAll, describe, expect, test } from "vitest";
import { ErrorInfoSchema, RetryInfoSchema } from "../../../gen/google/rpc/error_details_pb.ts";
import type { DomainError } from "../../../src/contract/errors.ts";
import { createEventQuota } from "../../../src/keys/quotas.ts";
import { failure } from "../../support/failure.ts";
import { orderEvent } from "../../support/grpc-calls.ts";
import { expectRefused } from "../../support/refusals.ts";
import { freshUrl, ONLY, startTestApi, useApi } from "../../support/test-api.ts";

const api = await useApi();
const { db } = api.context;
/** Another server on the same database, as another process would be. */
const other = await startTestApi({ databaseUrl: api.databaseUrl });
afterAll(() => other.stop());
const { keys } = api;

const withQuotas = async (quotas: { webhooks?: number; eventsPerSecond?: number }) => {
  const { apiKey, secret } = await keys.createApiKey({ name: "Shop", permissions: [1, 2, 3], quotas });
  return { id: apiKey?.id as string, secret, quotas: apiKey?.quotas };
};
const register = (key: string, on = api) =>
  on.rest("POST", "/api/webhook", { key, json: { process: 1, url: freshUrl() } });
const publisher = (key: string, on = api) => on.as(key).events;

describe("a quota of webhooks", () => {
  test("refuses further webhooks in every process, says which quota it is, and has room after a deletion", async () => {
    const { secret } = await withQuotas({ webhooks: 2 });
    const [first] = [await register(secret), await register(secret, other)];
    const answer = await register(secret, other);
    expect(answer.status).toBe(400);
    expect(answer.envelope.Warnings[0]).toMatch(/may own 2 webhooks, and would own 3; delete unused/);
    const call = api.register({ key: secret });
    const error = await expectRefused(call, Code.FailedPrecondition, "", "TOO_MANY_WEBHOOKS");
    expect(error.findDetails(ErrorInfoSchema)[0]?.metadata).toMatchObject({ quota: "webhooks", limit: "2" });
    await api.rest("DELETE", "/api/webhook", { key: secret, json: { webhookId: first.envelope.Data.Id } });
    expect((await register(secret)).status).toBe(200);
  });

  test("is not exceeded by registrations at the same time", async () => {
    const { id, secret } = await withQuotas({ webhooks: 5 });
    const calls = Array.from({ length: 12 }, (_, n) => register(secret, n % 2 === 0 ? api : other));
    expect((await Promise.all(calls)).filter(({ status }) => status === 200)).toHaveLength(5);
    expect(await db("webhooks").where({ api_key_id: id })).toHaveLength(5);
  });

  test("keeps the webhooks of a revoked key from a key without room for them", async () => {
    const [from, to] = [await api.key(), await withQuotas({ webhooks: 1 })];
    for (let n = 0; n < 2; n += 1) await register(from.secret);
    const transfer = () =>
      keys.revokeApiKey({ apiKeyId: from.id, webhooks: { case: "transferToKeyId", value: to.id } });
    await expectRefused(transfer(), Code.FailedPrecondition, "", "TOO_MANY_WEBHOOKS");
    expect((await register(from.secret)).status).toBe(200);
    await keys.setApiKeyQuotas({ apiKeyId: to.id, quotas: { webhooks: 3 } });
    expect((await transfer()).webhooksTransferred).toBe(3);
  });
});

describe("a quota of events per second", () => {
  test("refuses an event beyond it in every process, and accepts the same event when it told to publish it again", async () => {
    const { secret } = await withQuotas({ eventsPerSecond: 1 });
    await publisher(secret).publishEvent(orderEvent());
    const event = orderEvent();
    const error = await expectRefused(
      publisher(secret, other).publishEvent(event),
      Code.ResourceExhausted,
      /quota of 1 events per second is used up; publish the event again in \d+ ms/,
      "QUOTA_EXCEEDED",
    );
    const { metadata } = error.findDetails(ErrorInfoSchema)[0] ?? {};
    expect(metadata).toMatchObject({ quota: "events_per_second", limit: "1" });
    const delay = error.findDetails(RetryInfoSchema)[0]?.retryDelay;
    await wait(delay && durationMs(delay));
    expect(await publisher(secret, other).publishEvent(event)).toMatchObject({ duplicate: false });
  });

  test("accepts the first events of a batch, and tells each of the others the time of its own token", async () => {
    const { id, secret } = await withQuotas({ eventsPerSecond: 10 });
    const { results } = await publisher(secret).publishEventBatch({
      events: Array.from({ length: 300 }, orderEvent),
    });
    const outcomes = results.map(({ result }) => result.case);
    const accepted = outcomes.filter((outcome) => outcome === "published").length;
    expect(outcomes.slice(0, 10)).toEqual(Array(10).fill("published"));
    expect(outcomes.at(-1)).toBe("error");
    expect(await db("events").where("api_key_id", id)).toHaveLength(accepted);
    let before = 0;
    for (const [index, { result }] of results.entries()) {
      if (result.case !== "error") continue;
      const refused = { index, code: Code.ResourceExhausted, reason: "QUOTA_EXCEEDED" };
      expect(result.value).toMatchObject(refused);
      const told = result.value.retryAfter ? durationMs(result.value.retryAfter) : 0;
      // A busy service takes a large batch in parts. In each part, the first waits for the next token, and each of the others for
      // the one after.
      const isFirst = told <= 100;
      expect(told).toBeGreaterThan(isFirst ? 0 : before + 98);
      expect(told).toBeLessThanOrEqual(isFirst ? 100 : before + 101);
      before = told;
    }
  });

  test("tells each of many events that are refused together the time of its own token", async () => {
    const { id } = await api.key();
    const take = createEventQuota(db);
    const asked = Array.from({ length: 300 }, () => take({ id, eventsPerSecond: 10 }));
    const told = (await Promise.allSettled(asked)).map((each) =>
      each.status === "rejected" ? (each.reason as DomainError).retryAfterMs : undefined,
    );
    const refused = Array.from({ length: 290 }, (_, n) => 100 * (n + 1));
    expect(told).toEqual([...Array(10).fill(undefined), ...refused]);
  });

  test("grants what is asked at the same time in two processes no more than once", async () => {
    const { id } = await api.key();
    const key = { id, eventsPerSecond: 1_000 };
    const bucket = async () =>
      (await db("event_quotas").where("api_key_id", id).first()) as { tokens: number; at: Date };
    const full = { tokens: 1_000, rate: 1_000, requested: 0, granted: 0 };
    await db("event_quotas").insert({ api_key_id: id, at: db.fn.now(), ...full });
    const before = await bucket();
    const takers = [createEventQuota(db), createEventQuota(other.context.db)];
    const asked = Array.from({ length: 6_000 }, (_, n) => failure(takers[n % 2]?.(key) as Promise<void>));
    const granted = (await Promise.all(asked)).filter((error) => error === undefined).length;
    // A thousand at once, and one for each millisecond until the last statement.
    const { tokens, at } = await bucket();
    expect(granted).toBeGreaterThanOrEqual(1_000);
    expect(granted + tokens).toBeLessThanOrEqual(1_000 + at.getTime() - before.at.getTime() + 1);
  });

  test("grants events after the clock of the database was set back", async () => {
    const { id } = await api.key();
    const take = createEventQuota(db);
    const asked = () => failure(take({ id, eventsPerSecond: 100 }) as Promise<void>);
    await asked();
    const later = db.raw("now() + interval '1 hour'");
    await db("event_quotas").where("api_key_id", id).update({ tokens: 0, at: later });
    expect(await asked()).toBeDefined();
    await expect.poll(asked).toBeUndefined();
  });
});

describe("quotas of a key", () => {
  test("are listed, replaced as a whole and removed, and stay when the secret is rotated", async () => {
    const { id: apiKeyId, quotas } = await withQuotas({ webhooks: 7, eventsPerSecond: 30 });
    const listed = async () => (await keys.listApiKeys({})).apiKeys.find(({ id }) => id === apiKeyId)?.quotas;
    expect(quotas).toMatchObject({ webhooks: 7, eventsPerSecond: 30 });
    expect((await keys.rotateApiKey({ apiKeyId })).apiKey?.quotas).toEqual(quotas);
    const changed = await keys.setApiKeyQuotas({ apiKeyId, quotas: { webhooks: 8 } });
    expect(changed.apiKey?.quotas).toMatchObject({ webhooks: 8, eventsPerSecond: 0 });
    expect(await listed()).toEqual(changed.apiKey?.quotas);
    await keys.setApiKeyQuotas({ apiKeyId });
    expect(await listed()).toBeUndefined();
  });

  test("are not lifted by a key of an installed app, whose new keys get its own", async () => {
    const installedApplicationId = await api.app();
    const quotas = { webhookQuota: 1, eventsPerSecond: 2 };
    const own = api.as((await api.key({ installedAppId: installedApplicationId, quotas })).secret).keys;
    const wanted = { name: "Second", permissions: ONLY.read, installedApplicationId };
    await expectRefused(own.createApiKey({ ...wanted, quotas: { webhooks: 9 } }), Code.PermissionDenied);
    const { apiKey } = await own.createApiKey(wanted);
    expect(apiKey?.quotas).toMatchObject({ webhooks: 1, eventsPerSecond: 2 });
  });

  test("do not change once the key is revoked, and leave nothing behind when it is removed", async () => {
    const { id: apiKeyId, secret } = await withQuotas({ eventsPerSecond: 5 });
    const buckets = () => db("event_quotas").where({ api_key_id: apiKeyId });
    await publisher(secret).publishEvent(orderEvent());
    await api.revoke(apiKeyId);
    await expectRefused(keys.setApiKeyQuotas({ apiKeyId }), Code.FailedPrecondition);
    expect(await buckets()).toHaveLength(1);
    await keys.deleteApiKey({ apiKeyId });
    expect(await buckets()).toEqual([]);
  });
});
