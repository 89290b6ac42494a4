import { expect, test } from "vitest";
import {
  createEndpoint,
  deleteEndpoint,
  getEndpoint,
  updateEndpoint,
} from "../../../src/db/endpoints/endpoints.ts";
import { createInstalledApp } from "../../../src/db/keys/installed-apps.ts";
import { revokeApiKey } from "../../../src/db/keys/key-revocation.ts";
import { rotateKeyPair } from "../../../src/db/webhooks/key-pairs.ts";
import { writeRequestSettings } from "../../../src/db/webhooks/request-settings.ts";
import { rotateWebhookSecret } from "../../../src/db/webhooks/webhook-secrets.ts";
import { updateWebhook } from "../../../src/db/webhooks/webhook-update.ts";
import { createWebhook, deleteWebhook, idsOf } from "../../../src/db/webhooks/webhooks.ts";
import { SETTINGS as BREAKER } from "../circuit-breaker/breakers.ts";
import { openQueueDatabase } from "../queue/queue.ts";
import { MAX, newBox, newEndpoint, newKey, sharedStates } from "./endpoints.ts";

const db = await openQueueDatabase();
const box = newBox();

/** A webhook without an endpoint. */
async function plain(process: number, url: string, apiKeyId?: string) {
  const owner = apiKeyId ?? (await newKey(db));
  return (await createWebhook(db, box, { process, url, targetUrl: url, apiKeyId: owner }, MAX)).webhook;
}

const change = (endpointId: string, add: number[], remove: number[] = [], by = box) =>
  updateEndpoint(db, by, "everything", { endpointId }, { add, remove }, MAX);
const update = (id: bigint, changes: Parameters<typeof updateWebhook>[3]) =>
  updateWebhook(db, "everything", id, changes);

test("the event types of an endpoint share a secret, which is sealed for each webhook", async () => {
  const { id, webhooks } = await newEndpoint(db, box, [3, 1, 2, 1]);
  expect(webhooks.map(({ process, endpointId }) => [process, endpointId])).toEqual([
    [1, id],
    [2, id],
    [3, id],
  ]);
  const sealed = (await db("webhooks").pluck("secret")).map((each) => each.toString("hex"));
  expect(new Set(sealed).size).toBe(3);
  const states = await sharedStates(db, box, id);
  expect(states.get(2)).toEqual(states.get(1));
  expect(states.get(3)).toEqual(states.get(1));
  expect(await db("processes").orderBy("process").select("process", "live")).toEqual(
    [1, 2, 3].map((process) => ({ process, live: 1 })),
  );
});

test("an endpoint whose URL another webhook has for one of its event types is not created, nor a row of it", async () => {
  const url = "https://receiver.example/taken";
  const taken = await plain(2, url);
  const endpoint = { processes: [1, 2, 3], url, targetUrl: url, apiKeyId: await newKey(db) };
  await expect(createEndpoint(db, box, "everything", endpoint, MAX)).rejects.toMatchObject({
    reason: "WEBHOOK_EXISTS",
    message: expect.stringContaining(`DocumentCreated (webhook ${taken.id})`),
  });
  const app = await createInstalledApp(db, "App");
  const scope = { installedAppId: app.id, processes: [], permissions: [] };
  await expect(createEndpoint(db, box, scope, endpoint, MAX)).rejects.toMatchObject({
    message: expect.not.stringContaining(String(taken.id)),
  });
  expect([await db("webhooks").pluck("id"), await db("endpoints")]).toEqual([[taken.id], []]);
});

test("an event type that is added gets the owner, the secrets and the settings of the others, but not their filters", async () => {
  const { id, webhooks } = await newEndpoint(db, box, [1]);
  const [first] = idsOf(webhooks) as [bigint];
  await rotateWebhookSecret(db, box, [first]);
  await rotateKeyPair(db, box, [first], false);
  const headers = [{ name: "X-Tenant", value: "4711" }];
  await writeRequestSettings(db, box, [first], { headers, authentication: null, tls: null });
  const filter = 'user_id == "u"';
  await update(first, { name: "Orders", rateLimit: 7, paused: true, breaker: BREAKER, filter });
  const changed = await change(id, [2, 1]);
  expect(changed?.before.map(({ process }) => process)).toEqual([1]);
  expect(changed?.added.map(({ process, filter }) => [process, filter])).toEqual([[2, null]]);
  const states = await sharedStates(db, box, id);
  expect(states.get(2)).toEqual(states.get(1));
  const shared = { name: "Orders", rateLimit: 7, paused: expect.any(String), settings: { headers } };
  expect(states.get(2)).toMatchObject({ ...shared, breaker: expect.any(String) });
  expect([states.get(2)?.secrets.length, states.get(2)?.keyPairs.length]).toEqual([2, 1]);
});

test("a webhook that becomes an endpoint gives it the tokens of its rate limit", async () => {
  const { id, created } = await plain(1, "https://receiver.example/plain");
  await update(id, { rateLimit: 9 });
  await db("webhooks").where({ id }).update({ rate_tokens: 5.5 });
  const types = { add: [2], remove: [] };
  const changed = await updateEndpoint(db, box, "everything", { webhookId: id }, types, MAX);
  expect(changed?.endpoint.webhooks[0]).toMatchObject({ id, created });
  expect(await db("endpoints").pluck("rate_tokens")).toEqual([5.5]);
});

test("an event type for which another webhook has the URL is not added, and a full quota has room for an exchange", async () => {
  const owner = await newKey(db, { quotas: { webhookQuota: 2, eventsPerSecond: null } });
  const { id, webhooks } = await newEndpoint(db, box, [1], owner);
  const other = await plain(2, webhooks[0]?.url as string, owner);
  await expect(change(id, [2])).rejects.toMatchObject({
    message: expect.stringContaining(`DocumentCreated (webhook ${other.id})`),
  });
  await expect(change(id, [3])).rejects.toMatchObject({ reason: "TOO_MANY_WEBHOOKS" });
  expect((await change(id, [3], [1]))?.endpoint.webhooks.map(({ process }) => process)).toEqual([3]);
});

test("an endpoint is there until its last webhook is deleted; its URL is free then", async () => {
  const { id, webhooks } = await newEndpoint(db, box, [1, 2, 3]);
  const changed = await change(id, [], [2, 5]);
  expect(changed?.removed.map(({ process }) => process)).toEqual([2]);
  expect(await db("processes").where({ process: 2 }).pluck("live")).toEqual([0]);
  await deleteWebhook(db, webhooks[0]?.id as bigint);
  expect((await getEndpoint(db, "everything", id))?.webhooks.map(({ process }) => process)).toEqual([3]);
  await deleteWebhook(db, webhooks[2]?.id as bigint);
  expect([
    await getEndpoint(db, "everything", id),
    await change(id, [1]),
    await deleteEndpoint(db, "everything", id),
  ]).toEqual([null, null, null]);
  expect((await plain(1, webhooks[0]?.url as string)).endpointId).toBeNull();
});

test("a change of one webhook of an endpoint changes the others too, but for the filter; an equal value changes none", async () => {
  const { id, webhooks } = await newEndpoint(db, box, [1, 2]);
  const [first, second] = idsOf(webhooks) as [bigint, bigint];
  const address = { url: "https://Moved.example/", targetUrl: "https://moved.example/" };
  const filter = 'user_id == "u"';
  const changes = { name: null, address, rateLimit: 3, paused: true, breaker: BREAKER, filter };
  const changed = await update(second, changes);
  expect(changed?.webhook).toMatchObject({ id: second, revision: 2n, filter });
  expect(changed?.others).toMatchObject([{ webhook: { id: first, revision: 2n, filter: null } }]);
  const states = await sharedStates(db, box, id);
  expect(states.get(1)).toEqual(states.get(2));
  expect(states.get(1)).toMatchObject({ name: null, url: address.url, rateLimit: 3 });
  const again = await update(first, { name: null, paused: true, rateLimit: 3 });
  expect([again?.webhook.revision, again?.others[0]?.webhook.revision]).toEqual([2n, 2n]);
  const filtered = await update(first, { filter });
  expect([filtered?.webhook.revision, filtered?.others]).toEqual([3n, []]);
  const resumed = await update(first, { paused: false, breaker: null });
  const none = { paused: null, breaker: null };
  expect([resumed?.webhook, resumed?.others[0]?.webhook]).toMatchObject([none, none]);
});

test("another rate limit of an endpoint starts without tokens, for all together; the same one keeps them", async () => {
  const { id, webhooks } = await newEndpoint(db, box, [1, 2]);
  const [first, second] = idsOf(webhooks) as [bigint, bigint];
  const tokens = () => db("endpoints").where({ id }).pluck("rate_tokens");
  await db("endpoints").update({ rate_tokens: 5, rate_at: new Date(0) });
  await update(first, { rateLimit: 10 });
  expect(await tokens()).toEqual([0]);
  await db("endpoints").update({ rate_tokens: 5 });
  await update(second, { rateLimit: 10 });
  expect(await tokens()).toEqual([5]);
});

test("an endpoint does not move to a URL that another webhook has for one of its event types", async () => {
  const { id, webhooks } = await newEndpoint(db, box, [1, 2]);
  const url = "https://receiver.example/taken";
  await plain(2, url);
  const before = await sharedStates(db, box, id);
  const moving = update(webhooks[0]?.id as bigint, { address: { url, targetUrl: url } });
  const message = expect.stringContaining("DocumentCreated");
  await expect(moving).rejects.toMatchObject({ reason: "WEBHOOK_EXISTS", message });
  expect(await sharedStates(db, box, id)).toEqual(before);
});

test("an endpoint is deleted with its key", async () => {
  const owner = await newKey(db);
  const { id } = await newEndpoint(db, box, [1, 2], owner);
  await revokeApiKey(db, "everything", owner, "delete");
  expect(await getEndpoint(db, "everything", id)).toBeNull();
});

test("a secret that cannot be decrypted is not shared with another event type, and rotating repairs the endpoint", async () => {
  const { id, webhooks } = await newEndpoint(db, box, [1, 2]);
  const other = newBox();
  await expect(change(id, [3], [], other)).rejects.toMatchObject({ code: "FAILED_PRECONDITION" });
  await rotateWebhookSecret(db, other, idsOf(webhooks));
  expect((await change(id, [3], [], other))?.added).toHaveLength(1);
  const states = await sharedStates(db, other, id);
  expect(states.get(3)?.secrets).toEqual(states.get(1)?.secrets);
  expect(states.get(3)?.secrets).toHaveLength(1);
});
