import { describe, expect, test } from "vitest";
import type { BreakerSettings } from "../../../src/db/circuit-breaker/breakers.ts";
import {
  createEndpoint,
  deleteEndpoint,
  getEndpoint,
  updateEndpoint,
} from "../../../src/db/endpoints/endpoints.ts";
import { createInstalledApp } from "../../../src/db/keys/installed-apps.ts";
import { revokeApiKey } from "../../../src/db/keys/key-revocation.ts";
import type { AppScope } from "../../../src/db/scope.ts";
import { rotateKeyPair } from "../../../src/db/webhooks/key-pairs.ts";
import { writeRequestSettings } from "../../../src/db/webhooks/request-settings.ts";
import { readWebhookSecrets, rotateWebhookSecret } from "../../../src/db/webhooks/webhook-secrets.ts";
import { updateWebhook } from "../../../src/db/webhooks/webhook-update.ts";
import { createWebhook, deleteWebhook, idsOf } from "../../../src/db/webhooks/webhooks.ts";
import { openQueueDatabase } from "../queue/queue.ts";
import { MAX, newBox, newEndpoint, newKey, sharedStates } from "./endpoints.ts";

const db = await openQueueDatabase();
const box = newBox();

const BREAKER: BreakerSettings = {
  failures: 3,
  failingSeconds: 60,
  probeSeconds: 60,
  disableSeconds: 432_000,
  disableOnGone: true,
  resendFailed: true,
};

/** A webhook without an endpoint. */
async function plain(process: number, url: string, apiKeyId?: string) {
  const owner = apiKeyId ?? (await newKey(db));
  const made = await createWebhook(db, box, { process, url, targetUrl: url, apiKeyId: owner }, MAX);
  return made.webhook;
}

const add = (endpointId: string, ...processes: number[]) =>
  updateEndpoint(db, box, "everything", { endpointId }, { add: processes, remove: [] }, MAX);
const remove = (endpointId: string, ...processes: number[]) =>
  updateEndpoint(db, box, "everything", { endpointId }, { add: [], remove: processes }, MAX);

describe("a new endpoint", () => {
  test("has a webhook for each event type, with one secret, which is sealed for each", async () => {
    const { id, webhooks } = await newEndpoint(db, box, [3, 1, 2, 1]);
    expect(webhooks.map(({ process, endpointId, name }) => [process, endpointId, name])).toEqual([
      [1, id, "Shop"],
      [2, id, "Shop"],
      [3, id, "Shop"],
    ]);
    const sealed = await db("webhooks").pluck("secret");
    expect(new Set(sealed.map((each) => each.toString("hex"))).size).toBe(3);
    const secrets = await Promise.all(
      webhooks.map((webhook) => readWebhookSecrets(db, box, "everything", webhook.id)),
    );
    expect(secrets[1]).toEqual(secrets[0]);
    expect(secrets[2]).toEqual(secrets[0]);
    expect((await getEndpoint(db, "everything", id))?.webhooks).toEqual(webhooks);
    expect(await db("processes").orderBy("process").select("process", "live")).toEqual(
      [1, 2, 3].map((process) => ({ process, live: 1 })),
    );
  });

  test("is refused if a webhook has one of its event types and its URL; the error names the webhook, and nothing is made", async () => {
    const url = "https://receiver.example/taken";
    const taken = await plain(2, url);
    const apiKeyId = await newKey(db);
    const endpoint = { processes: [1, 2, 3], url, targetUrl: url, apiKeyId };
    await expect(createEndpoint(db, box, "everything", endpoint, MAX)).rejects.toMatchObject({
      code: "ALREADY_EXISTS",
      reason: "WEBHOOK_EXISTS",
      message: expect.stringContaining(`DocumentCreated (webhook ${taken.id})`),
    });
    const app = await createInstalledApp(db, "App");
    const scope: AppScope = { installedAppId: app.id, processes: [], permissions: [] };
    await expect(createEndpoint(db, box, scope, endpoint, MAX)).rejects.toMatchObject({
      message: expect.not.stringContaining(String(taken.id)),
    });
    expect(await db("webhooks").pluck("id")).toEqual([taken.id]);
    expect(await db("endpoints")).toEqual([]);
  });

  test("counts each event type for MAX_WEBHOOKS and for the quota of its key", async () => {
    const url = "https://receiver.example/many";
    await plain(1, "https://receiver.example/other");
    const apiKeyId = await newKey(db, { quotas: { webhookQuota: 2, eventsPerSecond: null } });
    const endpoint = { processes: [1, 2, 3], url, targetUrl: url, apiKeyId };
    await expect(createEndpoint(db, box, "everything", endpoint, 3)).rejects.toMatchObject({
      reason: "TOO_MANY_WEBHOOKS",
      message: expect.stringContaining("1 webhooks are registered, and 3 may be: 3 more are too many"),
    });
    await expect(createEndpoint(db, box, "everything", endpoint, 4)).rejects.toMatchObject({
      reason: "TOO_MANY_WEBHOOKS",
      message: expect.stringContaining("may own 2 webhooks, and would own 3"),
    });
    const two = { ...endpoint, processes: [1, 2] };
    expect((await createEndpoint(db, box, "everything", two, 3)).webhooks).toHaveLength(2);
  });
});

describe("an event type that is added", () => {
  test("gets the owner, the secrets and the settings of the others, but not their filters", async () => {
    const { id, webhooks } = await newEndpoint(db, box, [1]);
    const [first] = idsOf(webhooks) as [bigint];
    await rotateWebhookSecret(db, box, [first]);
    await rotateKeyPair(db, box, [first], false);
    const headers = [{ name: "X-Tenant", value: "4711" }];
    await writeRequestSettings(db, box, [first], { headers, authentication: null, tls: null });
    const changes = {
      name: "Orders",
      rateLimit: 7,
      paused: true,
      breaker: BREAKER,
      filter: 'user_id == "u"',
    };
    await updateWebhook(db, "everything", first, changes);
    const changed = await add(id, 2, 1);
    expect(changed?.before.map(({ process }) => process)).toEqual([1]);
    expect(changed?.added.map(({ process, filter }) => [process, filter])).toEqual([[2, null]]);
    const states = await sharedStates(db, box, id);
    expect(states.get(2)).toEqual(states.get(1));
    expect(states.get(2)).toMatchObject({ name: "Orders", rateLimit: 7, paused: expect.any(String) });
    expect(states.get(2)).toMatchObject({ settings: { headers }, breaker: expect.any(String) });
    expect([states.get(2)?.secrets.length, states.get(2)?.keyPairs.length]).toEqual([2, 1]);
  });

  test("makes an endpoint of a webhook without one, which keeps its id, its secret and its tokens", async () => {
    const webhook = await plain(1, "https://receiver.example/plain");
    await updateWebhook(db, "everything", webhook.id, { rateLimit: 9 });
    await db("webhooks").where({ id: webhook.id }).update({ rate_tokens: 5.5 });
    const before = await readWebhookSecrets(db, box, "everything", webhook.id);
    const types = { add: [2], remove: [] };
    const changed = await updateEndpoint(db, box, "everything", { webhookId: webhook.id }, types, MAX);
    expect(changed?.endpoint.webhooks.map(({ process }) => process)).toEqual([1, 2]);
    expect(changed?.endpoint.webhooks[0]).toMatchObject({ id: webhook.id, created: webhook.created });
    for (const { id } of changed?.endpoint.webhooks ?? [])
      expect(await readWebhookSecrets(db, box, "everything", id)).toEqual(before);
    expect(await db("endpoints").pluck("rate_tokens")).toEqual([5.5]);
  });

  test("is refused for a key that may not subscribe to it, beyond its quota, and where another webhook has it", async () => {
    const quotas = { webhookQuota: 3, eventsPerSecond: null };
    const owner = await newKey(db, { name: "Shop key", allowedProcesses: [1, 2], quotas });
    const { id, webhooks } = await newEndpoint(db, box, [1], owner);
    await expect(add(id, 3)).rejects.toMatchObject({
      code: "PERMISSION_DENIED",
      reason: "PROCESS_NOT_ALLOWED",
      message: expect.stringContaining(
        "“Shop key” that owns the endpoint may not subscribe to StockLevelChanged",
      ),
    });
    const other = await plain(2, webhooks[0]?.url as string, owner);
    await expect(add(id, 2)).rejects.toMatchObject({
      message: expect.stringContaining(`DocumentCreated (webhook ${other.id})`),
    });
    await deleteWebhook(db, other.id);
    for (const url of ["https://receiver.example/1", "https://receiver.example/2"])
      await plain(1, url, owner);
    await expect(add(id, 2)).rejects.toMatchObject({ reason: "TOO_MANY_WEBHOOKS" });
    // In exchange for another one, there is room.
    const exchange = { add: [2], remove: [1] };
    const changed = await updateEndpoint(db, box, "everything", { endpointId: id }, exchange, MAX);
    expect(changed?.endpoint.webhooks.map(({ process }) => process)).toEqual([2]);
  });
});

describe("an event type that is removed", () => {
  test("is deleted as every webhook, and the others stay", async () => {
    const { id, webhooks } = await newEndpoint(db, box, [1, 2, 3]);
    const changed = await remove(id, 2, 5);
    expect(changed?.removed.map(({ process }) => process)).toEqual([2]);
    expect(changed?.endpoint.webhooks.map(({ process }) => process)).toEqual([1, 3]);
    expect(await db("processes").where({ process: 2 }).pluck("live")).toEqual([0]);
    await deleteWebhook(db, webhooks[0]?.id as bigint);
    expect((await getEndpoint(db, "everything", id))?.webhooks.map(({ process }) => process)).toEqual([3]);
    await expect(remove(id, 3)).rejects.toMatchObject({
      code: "FAILED_PRECONDITION",
      message: expect.stringContaining("DeleteEndpoint"),
    });
    await deleteWebhook(db, webhooks[2]?.id as bigint);
    expect(await getEndpoint(db, "everything", id)).toBeNull();
    expect([await add(id, 1), await deleteEndpoint(db, "everything", id)]).toEqual([null, null]);
  });

  test("by deleting the endpoint are all, and its URL is free again", async () => {
    const { id, webhooks } = await newEndpoint(db, box, [1, 2]);
    expect((await deleteEndpoint(db, "everything", id))?.map(({ process }) => process)).toEqual([1, 2]);
    expect(await getEndpoint(db, "everything", id)).toBeNull();
    expect((await plain(1, webhooks[0]?.url as string)).endpointId).toBeNull();
  });
});

describe("a change of one webhook of an endpoint", () => {
  test("changes the others too, but for the filter; an equal value changes none", async () => {
    const { id, webhooks } = await newEndpoint(db, box, [1, 2]);
    const [first, second] = idsOf(webhooks) as [bigint, bigint];
    const address = { url: "https://Moved.example/", targetUrl: "https://moved.example/" };
    const changes = {
      name: null,
      address,
      rateLimit: 3,
      paused: true,
      breaker: BREAKER,
      filter: 'user_id == "u"',
    };
    const changed = await updateWebhook(db, "everything", second, changes);
    expect(changed?.webhook).toMatchObject({ id: second, revision: 2n, filter: changes.filter });
    expect(changed?.others).toMatchObject([{ webhook: { id: first, revision: 2n, filter: null } }]);
    const states = await sharedStates(db, box, id);
    expect(states.get(1)).toEqual(states.get(2));
    expect(states.get(1)).toMatchObject({ name: null, url: address.url, rateLimit: 3 });
    const again = await updateWebhook(db, "everything", first, { name: null, paused: true, rateLimit: 3 });
    expect([again?.webhook.revision, again?.others[0]?.webhook.revision]).toEqual([2n, 2n]);
    const filtered = await updateWebhook(db, "everything", first, { filter: 'user_id == "v"' });
    expect([filtered?.webhook.revision, filtered?.others]).toEqual([3n, []]);
    const resumed = await updateWebhook(db, "everything", first, { paused: false, breaker: null });
    expect([resumed?.webhook, resumed?.others[0]?.webhook]).toMatchObject([
      { id: first, paused: null, breaker: null },
      { id: second, paused: null, breaker: null },
    ]);
  });

  test("starts a new rate limit without tokens, for all together", async () => {
    const { id, webhooks } = await newEndpoint(db, box, [1, 2]);
    const [first, second] = idsOf(webhooks) as [bigint, bigint];
    await db("endpoints").update({ rate_tokens: 5, rate_at: new Date(0) });
    await updateWebhook(db, "everything", first, { rateLimit: 10 });
    expect(await db("endpoints").where({ id }).pluck("rate_tokens")).toEqual([0]);
    await db("endpoints").update({ rate_tokens: 5 });
    await updateWebhook(db, "everything", second, { rateLimit: 10 });
    expect(await db("endpoints").where({ id }).pluck("rate_tokens")).toEqual([5]);
  });

  test("to a URL that another webhook has for one of the event types changes nothing", async () => {
    const { id, webhooks } = await newEndpoint(db, box, [1, 2]);
    const url = "https://receiver.example/taken";
    await plain(2, url);
    const before = await sharedStates(db, box, id);
    const moving = updateWebhook(db, "everything", webhooks[0]?.id as bigint, {
      address: { url, targetUrl: url },
    });
    await expect(moving).rejects.toMatchObject({
      reason: "WEBHOOK_EXISTS",
      message: expect.stringContaining("DocumentCreated"),
    });
    expect(await sharedStates(db, box, id)).toEqual(before);
  });

  test("is refused to a key that cannot access all of its event types; filters excepted", async () => {
    const app = await createInstalledApp(db, "App");
    const owner = await newKey(db, { installedAppId: app.id });
    const { id, webhooks } = await newEndpoint(db, box, [1, 2], owner);
    const [first, second] = idsOf(webhooks) as [bigint, bigint];
    const narrow: AppScope = { installedAppId: app.id, processes: [1], permissions: [] };
    const types = { add: [], remove: [1] };
    const before = await sharedStates(db, box, id);
    for (const refused of [
      () => updateWebhook(db, narrow, first, { paused: true }),
      () => updateEndpoint(db, box, narrow, { endpointId: id }, types, MAX),
      () => updateEndpoint(db, box, narrow, { webhookId: first }, types, MAX),
      () => deleteEndpoint(db, narrow, id),
    ]) {
      await expect(refused()).rejects.toMatchObject({ code: "PERMISSION_DENIED", reason: "NOT_ALLOWED" });
    }
    expect(await updateWebhook(db, narrow, second, { paused: true })).toBeNull();
    expect(await updateEndpoint(db, box, narrow, { webhookId: second }, types, MAX)).toBeNull();
    expect(await sharedStates(db, box, id)).toEqual(before);
    const filtered = await updateWebhook(db, narrow, first, { filter: 'user_id == "u"' });
    expect(filtered?.webhook.filter).toBe('user_id == "u"');
    // The rest of the endpoint is not shown.
    expect((await getEndpoint(db, narrow, id))?.webhooks.map((each) => each.id)).toEqual([first]);
    const others: AppScope = { ...narrow, processes: [3] };
    expect(await getEndpoint(db, others, id)).toBeNull();
  });
});

test("revoking the key of an endpoint transfers or deletes all of its webhooks", async () => {
  const [owner, heir] = [await newKey(db), await newKey(db)];
  const { id } = await newEndpoint(db, box, [1, 2], owner);
  await revokeApiKey(db, "everything", owner, { transferTo: heir });
  const added = await add(id, 3);
  expect(added?.endpoint.webhooks.map(({ apiKeyId }) => apiKeyId)).toEqual([heir, heir, heir]);
  await revokeApiKey(db, "everything", heir, "delete");
  expect(await getEndpoint(db, "everything", id)).toBeNull();
});

test("a secret that cannot be decrypted is not shared with another event type, and rotating repairs the endpoint", async () => {
  const { id, webhooks } = await newEndpoint(db, box, [1, 2]);
  const other = newBox();
  const types = { add: [3], remove: [] };
  const adding = () => updateEndpoint(db, other, "everything", { endpointId: id }, types, MAX);
  await expect(adding()).rejects.toMatchObject({ code: "FAILED_PRECONDITION" });
  await rotateWebhookSecret(db, other, idsOf(webhooks));
  expect((await adding())?.added).toHaveLength(1);
  const states = await sharedStates(db, other, id);
  expect(states.get(3)?.secrets).toEqual(states.get(1)?.secrets);
  expect(states.get(3)?.secrets).toHaveLength(1);
});
