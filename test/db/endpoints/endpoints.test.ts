import { expect, test } from "vitest";
import { createEndpoint, getEndpoint, updateEndpoint } from "../../../src/db/endpoints/endpoints.ts";
import { createInstalledApp } from "../../../src/db/keys/installed-apps.ts";
import { revokeApiKey } from "../../../src/db/keys/key-revocation.ts";
import { rotateKeyPair } from "../../../src/db/webhooks/key-pairs.ts";
import { writeRequestSettings } from "../../../src/db/webhooks/request-settings.ts";
import { rotateWebhookSecret } from "../../../src/db/webhooks/webhook-secrets.ts";
import { updateWebhook } from "../../../src/db/webhooks/webhook-update.ts";
import { createWebhook, idsOf } from "../../../src/db/webhooks/webhooks.ts";
import { aKey } from "../../support/builders.ts";
import { SETTINGS as BREAKER } from "../circuit-breaker/breakers.ts";
import { openQueueDatabase } from "../queue/queue.ts";
import { MAX, newBox, newEndpoint, sharedStates } from "./endpoints.ts";

const db = await openQueueDatabase();
const box = newBox();

/** A webhook without an endpoint. */
async function plain(process: number, url: string, apiKeyId?: string) {
  const owner = apiKeyId ?? (await aKey().in(db)).id;
  return (await createWebhook(db, box, { process, url, targetUrl: url, apiKeyId: owner }, MAX)).webhook;
}

const change = (endpointId: string, add: number[], remove: number[] = [], by = box) =>
  updateEndpoint(db, by, "everything", { endpointId }, { add, remove }, MAX);
const update = (id: bigint, changes: Parameters<typeof updateWebhook>[3]) =>
  updateWebhook(db, "everything", id, changes);

test("a URL that another webhook has for an event type is refused to an endpoint that is created, gets the type or moves; nothing changes", async () => {
  const { id, webhooks } = await newEndpoint(db, box, [1]);
  const mixed = await newEndpoint(db, box, [1, 2]);
  const url = webhooks[0]?.url as string;
  const taken = await plain(2, url);
  const wanted = { processes: [2, 3], url, targetUrl: url, apiKeyId: (await aKey().in(db)).id };
  const app = await createInstalledApp(db, "App");
  const scope = { installedAppId: app.id, processes: [], permissions: [] };
  const stored = async () => [await db("webhooks").orderBy("id"), await db("endpoints").pluck("id")];
  const before = await stored();
  const named = `DocumentCreated (webhook ${taken.id})`;
  for (const [call, message] of [
    [() => createEndpoint(db, box, "everything", wanted, MAX), named],
    [() => change(id, [2]), named],
    [() => update(mixed.webhooks[1]?.id as bigint, { address: { url, targetUrl: url } }), "DocumentCreated"],
  ] as const)
    await expect(call()).rejects.toMatchObject({
      reason: "WEBHOOK_EXISTS",
      message: expect.stringContaining(message),
    });
  await expect(createEndpoint(db, box, scope, wanted, MAX)).rejects.toMatchObject({
    message: expect.not.stringContaining(String(taken.id)),
  });
  expect(await stored()).toEqual(before);
});

test("an event type that is added gets the owner, the secrets and the settings of the others, but not their filters", async () => {
  const { id, webhooks } = await newEndpoint(db, box, [1, 1]);
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

test("an equal value changes no webhook of an endpoint, and a filter only its own", async () => {
  const { webhooks } = await newEndpoint(db, box, [1, 2]);
  const [first, second] = idsOf(webhooks) as [bigint, bigint];
  const filter = 'user_id == "u"';
  const settings = { name: null, rateLimit: 3, paused: true, breaker: BREAKER };
  const changed = await update(second, { ...settings, filter });
  expect(changed?.webhook).toMatchObject({ id: second, revision: 2n, filter });
  expect(changed?.others).toMatchObject([{ webhook: { id: first, revision: 2n, filter: null } }]);
  const again = await update(first, settings);
  expect([again?.webhook.revision, again?.others[0]?.webhook.revision]).toEqual([2n, 2n]);
  const filtered = await update(first, { filter });
  expect([filtered?.webhook.revision, filtered?.others]).toEqual([3n, []]);
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

test("an endpoint is deleted with its key", async () => {
  const owner = (await aKey().in(db)).id;
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
