import { Code } from "@connectrpc/connect";
import { afterAll, describe, expect, test } from "vitest";
import { startSession } from "../../../src/keys/sessions.ts";
import { failure } from "../../support/failure.ts";
import { expectRefused } from "../../support/refusals.ts";
import { startTestApi, useApi } from "../../support/test-api.ts";

const api = await useApi();
const { keys, webhooks, deliveries } = api;

test("removing a revoked key forgets it with its sessions and old secrets; its deleted webhooks and their deliveries stay in the log", async () => {
  const { db } = api.context;
  const { id, secret } = await api.key();
  await startSession(db, id, secret);
  const url = "https://receiver.example/removed";
  const webhookId = await api.register({ url, key: secret });
  const { deliveryId } = await webhooks.sendTestEvent({ webhookId });
  await keys.rotateApiKey({ apiKeyId: id, gracePeriod: { seconds: 60n } });
  const early = keys.deleteApiKey({ apiKeyId: id });
  await expectRefused(early, Code.FailedPrecondition, "call RevokeApiKey first");
  await api.revoke(id);
  expect((await keys.deleteApiKey({ apiKeyId: id.toUpperCase() })).apiKey).toMatchObject({ id });
  expect((await keys.listApiKeys({})).apiKeys).not.toContainEqual(expect.objectContaining({ id }));
  for (const table of ["sessions", "api_key_old_secrets"])
    expect(await db(table).where("api_key_id", id)).toEqual([]);
  const { delivery, request } = await deliveries.getDelivery({ deliveryId });
  expect([delivery?.url, request?.body]).toEqual([url, expect.stringContaining("OrderId")]);
  // The address is free again, for whoever registers it next.
  await api.register({ url });
});

test("removing an installed app waits until its keys are removed and its webhooks deleted; its deliveries stay in the log as they were sent", async () => {
  const installedApplicationId = await api.app("Shop");
  const remove = () => keys.deleteInstalledApp({ installedApplicationId });
  const waits = (left: string) => {
    const message = `has ${left} API keys, including revoked ones, and 1 webhooks`;
    return expectRefused(remove(), Code.FailedPrecondition, message);
  };
  const { id, secret } = await api.key({ installedAppId: installedApplicationId });
  const webhookId = await api.register({ key: secret });
  const { deliveryId } = await webhooks.sendTestEvent({ webhookId });
  await waits("1");
  const heir = await api.key();
  await keys.revokeApiKey({ apiKeyId: id, webhooks: { case: "transferToKeyId", value: heir.id } });
  await waits("1");
  await keys.deleteApiKey({ apiKeyId: id });
  await waits("0");
  await webhooks.deleteWebhook({ webhookId });
  expect((await remove()).installedApp).toMatchObject({ name: "Shop" });
  expect((await keys.listInstalledApps({})).installedApps).toEqual([]);
  const { request } = await deliveries.getDelivery({ deliveryId });
  expect(request?.headers.map(({ name }) => name)).toContain("X-Service-UserId");
});

test("removing an installed app and creating a key of it at the same time leave no key without its app", async () => {
  for (let round = 0; round < 5; round++) {
    const installedApplicationId = await api.app("Race");
    const create = keys.createApiKey({ name: "k", permissions: [1], installedApplicationId });
    const remove = keys.deleteInstalledApp({ installedApplicationId });
    const outcomes = await Promise.all([failure(create), failure(remove)]);
    // Either goes first, and the other is refused for it.
    expect([
      [undefined, Code.FailedPrecondition],
      [Code.InvalidArgument, undefined],
    ]).toContainEqual(outcomes.map((error) => error?.code));
  }
});

describe("the service takes no more than so many", async () => {
  const full = await startTestApi({ limits: { maxApiKeys: 4, maxInstalledApps: 2 } });
  afterAll(() => full.stop());
  const client = full.keys;

  /** Asks for eight at once; expects that some are refused. */
  async function expectRefusals(make: () => Promise<unknown>, refused: number, message: RegExp) {
    const outcomes = await Promise.all(Array.from({ length: 8 }, () => failure(make())));
    const refusals = outcomes.flatMap((error) => (error ? [[error.code, error.rawMessage]] : []));
    expect(refusals).toEqual(Array(refused).fill([Code.FailedPrecondition, expect.stringMatching(message)]));
  }

  test("API keys, revoked ones included, however many are asked for at once; removing one makes room", async () => {
    const make = () => client.createApiKey({ name: "k", permissions: [1] });
    await expectRefusals(make, 5, /has 4 API keys.*DeleteApiKey.*MAX_API_KEYS/);
    const { secret } = await full.key({ customer: "acme" });
    const own = full.as(secret).keys.createApiKey({ name: "k", permissions: [1] });
    const { rawMessage } = await expectRefused(own, Code.FailedPrecondition, /DeleteApiKey.*MAX_API_KEYS/);
    expect(rawMessage).not.toMatch(/\d/);
    await full.context.db("api_keys").where({ customer: "acme" }).del();
    const id = (await client.listApiKeys({})).apiKeys.at(-1)?.id as string;
    await full.revoke(id);
    await expectRefused(make(), Code.FailedPrecondition);
    await client.deleteApiKey({ apiKeyId: id });
    await make();
  });

  test("installed apps; removing one makes room", async () => {
    const make = () => client.createInstalledApp({ name: "app" });
    await expectRefusals(make, 6, /has 2 installed apps.*DeleteInstalledApp.*MAX_INSTALLED_APPS/);
    const [app] = (await client.listInstalledApps({})).installedApps;
    await client.deleteInstalledApp({ installedApplicationId: app?.id as string });
    await make();
  });
});
