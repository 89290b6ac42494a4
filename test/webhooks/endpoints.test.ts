import { expect, test } from "vitest";
import { createInstalledApp } from "../../src/keys/installed-apps.ts";
import { cancelFirst } from "../../src/queue/deleted-webhooks.ts";
import { heedWishes } from "../../src/queue/holds.ts";
import { createEndpoint, updateEndpoint } from "../../src/webhooks/endpoints.ts";
import { rotateWebhookSecret } from "../../src/webhooks/webhook-secrets.ts";
import { updateWebhook } from "../../src/webhooks/webhook-update.ts";
import { idsOf } from "../../src/webhooks/webhooks.ts";
import { SETTINGS as BREAKER } from "../breakers/breakers.ts";
import { openQueueDatabase } from "../queue/queue.ts";
import { aKey, aWebhook } from "../support/builders.ts";
import { MAX, newBox, newEndpoint, sharedStates } from "./endpoints.ts";

const db = await openQueueDatabase();
const box = newBox();

const add = (endpointId: string, types: number[], by = box) =>
  updateEndpoint(db, by, "everything", { endpointId }, { add: types, remove: [] }, MAX, cancelFirst);
const update = (id: bigint, changes: Parameters<typeof updateWebhook>[3]) =>
  updateWebhook(db, "everything", id, changes);

test("a URL that another webhook has for an event type is refused to an endpoint that is created, gets the type or moves; nothing changes", async () => {
  const { id, webhooks } = await newEndpoint(db, box, [1]);
  const mixed = await newEndpoint(db, box, [1, 2]);
  const url = webhooks[0]?.url as string;
  const taken = await aWebhook().for(2).at(url).in(db);
  const wanted = { processes: [2, 3], url, targetUrl: url, apiKeyId: (await aKey().in(db)).id };
  const app = await createInstalledApp(db, "App");
  const scope = { customer: null, installedAppId: app.id, processes: [], permissions: [] };
  const stored = async () => [await db("webhooks").orderBy("id"), await db("endpoints").pluck("id")];
  const before = await stored();
  const named = expect.stringContaining(`DocumentCreated (webhook ${taken})`);
  const moved = { address: { url, targetUrl: url } };
  for (const [call, message] of [
    [() => createEndpoint(db, box, "everything", wanted, MAX), named],
    [() => createEndpoint(db, box, scope, wanted, MAX), expect.not.stringContaining(String(taken))],
    [() => add(id, [2]), named],
    [() => update(mixed.webhooks[1]?.id as bigint, moved), expect.stringContaining("DocumentCreated")],
  ] as const)
    await expect(call()).rejects.toMatchObject({ reason: "WEBHOOK_EXISTS", message });
  expect(await stored()).toEqual(before);
});

test("an equal value changes no webhook of an endpoint, and a filter only its own; an event type that is added gets none", async () => {
  const { id, webhooks } = await newEndpoint(db, box, [1, 2]);
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
  expect((await add(id, [3, 1]))?.added).toMatchObject([{ process: 3, filter: null }]);
});

test("a webhook that becomes an endpoint gives it the tokens of its rate limit; another limit starts without tokens", async () => {
  const { id: plain } = (await newEndpoint(db, box, [1])).webhooks[0] as { id: bigint };
  const limited = { endpoint_id: null, rate_limit: 9, rate_tokens: 5.5 };
  await db("webhooks").where({ id: plain }).update(limited);
  await db("endpoints").delete();
  const types = { add: [2], remove: [] };
  const made = await updateEndpoint(db, box, "everything", { webhookId: plain }, types, MAX, cancelFirst);
  const tokens = () => db("endpoints").pluck("rate_tokens");
  expect(await tokens()).toEqual([5.5]);
  const [first, second] = idsOf(made?.endpoint.webhooks ?? []) as [bigint, bigint];
  await update(first, { rateLimit: 10 });
  expect(await tokens()).toEqual([0]);
  await db("endpoints").update({ rate_tokens: 5 });
  await update(second, { rateLimit: 10 });
  expect(await tokens()).toEqual([5]);
});

test("an event type that is added to an endpoint is held with it, at the same pace", async () => {
  const { id, webhooks } = await newEndpoint(db, box, [1]);
  const [first] = idsOf(webhooks) as [bigint];
  const [targetUrl = ""] = await db("webhooks").where({ id: first }).pluck("target_url");
  const asked = { holdMs: 3_600_000, isRefusal: true, statedRate: null, acceptedRate: 5 };
  await heedWishes(db, [{ ...asked, webhookId: first, targetUrl }]);
  await add(id, [2]);
  const [one, other] = await db("webhooks")
    .where({ endpoint_id: id })
    .select("held_until", "receiver_rate", "paced_from");
  expect(other).toEqual(one);
  expect(other?.receiver_rate).toBe(5);
});

test("a secret that cannot be decrypted is not shared with another event type, and rotating repairs the endpoint", async () => {
  const { id, webhooks } = await newEndpoint(db, box, [1, 2]);
  const other = newBox();
  await expect(add(id, [3], other)).rejects.toMatchObject({ code: "FAILED_PRECONDITION" });
  await rotateWebhookSecret(db, other, idsOf(webhooks));
  expect((await add(id, [3], other))?.added).toHaveLength(1);
  const states = await sharedStates(db, other, id);
  expect(states.get(3)?.secrets).toEqual(states.get(1)?.secrets);
  expect(states.get(3)?.secrets).toHaveLength(1);
});
