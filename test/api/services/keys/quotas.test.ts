import { randomUUID } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import { durationMs } from "@bufbuild/protobuf/wkt";
import { Code } from "@connectrpc/connect";
import { afterAll, describe, expect, test } from "vitest";
import { ErrorInfoSchema, RetryInfoSchema } from "../../../../gen/google/rpc/error_details_pb.ts";
import { ApiKeyService } from "../../../../gen/webhook/v1/api_key_pb.ts";
import { EventService } from "../../../../gen/webhook/v1/event_pb.ts";
import { WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { createEventQuota } from "../../../../src/db/keys/quotas.ts";
import { failure } from "../../../support/failure.ts";
import { orderEvent, reasonOf, refused } from "../../../support/grpc-calls.ts";
import { ONLY, startTestApi, useApi } from "../../../support/test-api.ts";

const api = await useApi();
/** Another server on the same database, as another process would be. */
const other = await startTestApi({ databaseUrl: api.databaseUrl });
const keys = api.client(ApiKeyService);
afterAll(async () => {
  await other.stop();
});

const newUrl = () => `https://receiver.example/${randomUUID()}`;
const register = (key: string, on = api) =>
  on.rest("POST", "/api/webhook", { key, json: { process: 1, url: newUrl() } });
const quotasOf = async (id: string) =>
  (await keys.listApiKeys({})).apiKeys.find((key) => key.id === id)?.quotas;
const publisher = (key: string, on = api) => on.client(EventService, key);

describe("a quota of webhooks", () => {
  test("refuses further webhooks in every process, says which quota it is, and has room after a deletion", async () => {
    const { id, secret } = await api.key();
    await keys.setApiKeyQuotas({ apiKeyId: id, quotas: { webhooks: 2 } });
    const first = await register(secret);
    await register(secret, other);
    const answer = await register(secret, other);
    expect([answer.status, answer.envelope.Success]).toEqual([400, false]);
    expect(answer.envelope.Warnings[0]).toMatch(/may own 2 webhooks, and would own 3; delete unused/);
    const error = await refused(
      api.client(WebhookService, secret).createWebhook({ process: 1, url: newUrl() }),
    );
    expect([error.code, reasonOf(error)]).toEqual([Code.FailedPrecondition, "TOO_MANY_WEBHOOKS"]);
    expect(error.findDetails(ErrorInfoSchema)[0]?.metadata).toMatchObject({ quota: "webhooks", limit: "2" });

    expect((await register(api.adminKey)).status).toBe(200);
    await api.rest("DELETE", "/api/webhook", { key: secret, json: { webhookId: first.envelope.Data.Id } });
    expect((await register(secret)).status).toBe(200);
  });

  test("is not exceeded by registrations at the same time", async () => {
    const { apiKey, secret } = await keys.createApiKey({
      name: "Busy",
      permissions: ONLY.write,
      quotas: { webhooks: 5 },
    });
    const answers = await Promise.all(
      Array.from({ length: 12 }, (_, n) => register(secret, n % 2 === 0 ? api : other)),
    );
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(5);
    expect(await api.context.db("webhooks").where({ api_key_id: apiKey?.id as string })).toHaveLength(5);
  });

  test("keeps the webhooks of a revoked key from a key without room for them", async () => {
    const [from, to] = [await api.key(), await api.key()];
    await keys.setApiKeyQuotas({ apiKeyId: to.id, quotas: { webhooks: 1 } });
    for (const { secret } of [from, from]) await register(secret);
    const transfer = () =>
      keys.revokeApiKey({ apiKeyId: from.id, webhooks: { case: "transferToKeyId", value: to.id } });
    const error = await refused(transfer());
    expect([error.code, reasonOf(error)]).toEqual([Code.FailedPrecondition, "TOO_MANY_WEBHOOKS"]);
    expect((await register(from.secret)).status).toBe(200);
    await keys.setApiKeyQuotas({ apiKeyId: to.id, quotas: { webhooks: 3 } });
    expect((await transfer()).webhooksTransferred).toBe(3);
  });
});

describe("a quota of events per second", () => {
  test("refuses an event beyond it in every process, and accepts the same event when it told to publish it again", async () => {
    const { secret } = await keys.createApiKey({
      name: "Publisher",
      permissions: ONLY.publish,
      quotas: { eventsPerSecond: 1 },
    });
    await publisher(secret).publishEvent(orderEvent());
    const event = orderEvent();
    const error = await failure(publisher(secret, other).publishEvent(event));
    expect([error?.code, error && reasonOf(error)]).toEqual([Code.ResourceExhausted, "QUOTA_EXCEEDED"]);
    expect(error?.rawMessage).toMatch(
      /quota of 1 events per second is used up; publish the event again in \d+ ms/,
    );
    expect(error?.findDetails(ErrorInfoSchema)[0]?.metadata).toMatchObject({
      quota: "events_per_second",
      limit: "1",
    });
    const delay = error?.findDetails(RetryInfoSchema)[0]?.retryDelay;
    await wait(Number(delay?.seconds) * 1_000 + (delay?.nanos ?? 0) / 1_000_000);
    expect(await publisher(secret, other).publishEvent(event)).toMatchObject({ duplicate: false });
  });

  test("accepts the first events of a batch and refuses the others one by one", async () => {
    const { secret } = await keys.createApiKey({
      name: "Batches",
      permissions: ONLY.publish,
      quotas: { eventsPerSecond: 10 },
    });
    const requests = Array.from({ length: 300 }, orderEvent);
    const { results } = await publisher(secret).publishEventBatch({ events: requests });
    const outcomes = results.map(({ result }) => result.case);
    const accepted = outcomes.filter((outcome) => outcome === "published").length;
    expect(accepted).toBeGreaterThanOrEqual(10);
    expect(outcomes.slice(0, 10)).toEqual(Array(10).fill("published"));
    expect(accepted).toBeLessThan(300);
    const last = results.at(-1)?.result;
    expect(last).toMatchObject({
      case: "error",
      value: { index: 299, code: Code.ResourceExhausted, reason: "QUOTA_EXCEEDED" },
    });
    const told = last?.case === "error" ? last.value.retryAfter : undefined;
    // A hundred milliseconds for each refused event.
    expect(told && durationMs(told)).toBeGreaterThan(100 * (300 - accepted - 1));
    expect(told && durationMs(told)).toBeLessThanOrEqual(100 * (300 - accepted));
    expect(
      await api.context.db("events").whereIn(
        "idempotency_key",
        requests.map(({ idempotencyKey }) => idempotencyKey),
      ),
    ).toHaveLength(accepted);
  });

  test("grants what is asked at the same time in two processes no more than once", async () => {
    const { id } = await api.key();
    const key = { id, eventsPerSecond: 1_000 };
    const takers = [createEventQuota(api.context.db), createEventQuota(other.context.db)];
    const started = performance.now();
    const asked = Array.from({ length: 6_000 }, (_, n) => failure(takers[n % 2]?.(key) as Promise<void>));
    const granted = (await Promise.all(asked)).filter((error) => error === undefined).length;
    const seconds = (performance.now() - started) / 1_000;
    expect(granted).toBeGreaterThanOrEqual(1_000);
    expect(granted).toBeLessThanOrEqual(1_000 * (1 + seconds));
  });

  test("grants events after the clock of the database was set back", async () => {
    const { id } = await api.key();
    const take = createEventQuota(api.context.db);
    const asked = () => failure(take({ id, eventsPerSecond: 100 }) as Promise<void>);
    await asked();
    await api.context.db.raw(
      "update event_quotas set tokens = 0, at = now() + interval '1 hour' where api_key_id = ?",
      [id],
    );
    expect(await asked()).toBeDefined();
    await expect.poll(asked).toBeUndefined();
  });

  test("does not apply to other keys", async () => {
    const { secret } = await api.key({ permissions: ONLY.publish });
    const { results } = await publisher(secret).publishEventBatch({
      events: Array.from({ length: 50 }, orderEvent),
    });
    expect(results.every(({ result }) => result.case === "published")).toBe(true);
  });
});

describe("quotas of a key", () => {
  test("are listed, replaced as a whole and removed, and stay when the secret is rotated", async () => {
    const { apiKey } = await keys.createApiKey({
      name: "Shop",
      permissions: ONLY.write,
      quotas: { webhooks: 7, eventsPerSecond: 30 },
    });
    const apiKeyId = apiKey?.id as string;
    expect(apiKey?.quotas).toMatchObject({ webhooks: 7, eventsPerSecond: 30 });
    expect((await keys.rotateApiKey({ apiKeyId })).apiKey?.quotas).toMatchObject({ webhooks: 7 });
    const changed = await keys.setApiKeyQuotas({ apiKeyId, quotas: { webhooks: 8 } });
    expect(changed.apiKey?.quotas).toMatchObject({ webhooks: 8, eventsPerSecond: 0 });
    expect(await quotasOf(apiKeyId)).toMatchObject({ webhooks: 8, eventsPerSecond: 0 });
    await keys.setApiKeyQuotas({ apiKeyId });
    expect(await quotasOf(apiKeyId)).toBeUndefined();
  });

  test("outside their ranges, of an unknown key and of a revoked key are refused", async () => {
    const { id } = await api.key();
    const outside = await refused(
      keys.setApiKeyQuotas({ apiKeyId: id, quotas: { webhooks: -1, eventsPerSecond: 100_001 } }),
    );
    expect(outside.code).toBe(Code.InvalidArgument);
    expect(outside.rawMessage).toMatch(
      /quotas\.webhooks must be from 1 to 1000000, or 0.*quotas\.events_per_second must be from 1 to 100000, or 0/s,
    );
    expect((await refused(keys.setApiKeyQuotas({ apiKeyId: randomUUID() }))).code).toBe(Code.NotFound);
    expect((await refused(keys.setApiKeyQuotas({ apiKeyId: "x" }))).code).toBe(Code.InvalidArgument);
    await keys.revokeApiKey({ apiKeyId: id, webhooks: { case: "deleteWebhooks", value: {} } });
    expect((await refused(keys.setApiKeyQuotas({ apiKeyId: id }))).code).toBe(Code.FailedPrecondition);
  });

  test("are not lifted by a key of an installed app, whose new keys get its own", async () => {
    const { installedApp } = await keys.createInstalledApp({ name: "App" });
    const installedApplicationId = installedApp?.id as string;
    const { id, secret } = await api.key({ installedAppId: installedApplicationId });
    await keys.setApiKeyQuotas({ apiKeyId: id, quotas: { webhooks: 1, eventsPerSecond: 2 } });
    const own = api.client(ApiKeyService, secret);
    const wanted = { name: "Second", permissions: ONLY.write, installedApplicationId };
    expect((await refused(own.setApiKeyQuotas({ apiKeyId: id }))).code).toBe(Code.PermissionDenied);
    expect((await refused(own.createApiKey({ ...wanted, quotas: { webhooks: 9 } }))).code).toBe(
      Code.PermissionDenied,
    );
    const second = await own.createApiKey(wanted);
    expect(second.apiKey?.quotas).toMatchObject({ webhooks: 1, eventsPerSecond: 2 });
  });

  test("leave nothing behind when the key is removed", async () => {
    const { apiKey, secret } = await keys.createApiKey({
      name: "Short-lived",
      permissions: ONLY.publish,
      quotas: { eventsPerSecond: 5 },
    });
    const apiKeyId = apiKey?.id as string;
    const buckets = () => api.context.db("event_quotas").where({ api_key_id: apiKeyId });
    await publisher(secret).publishEvent(orderEvent());
    expect(await buckets()).toHaveLength(1);
    await keys.revokeApiKey({ apiKeyId, webhooks: { case: "deleteWebhooks", value: {} } });
    await keys.deleteApiKey({ apiKeyId });
    expect(await buckets()).toEqual([]);
  });
});
