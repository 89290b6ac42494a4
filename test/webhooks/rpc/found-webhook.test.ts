import { Code } from "@connectrpc/connect";
import { afterAll, expect, test } from "vitest";
import { failure } from "../../support/failure.ts";
import { expectRefused } from "../../support/refusals.ts";
import { freshUrl, startTestApi, type TestApi, useApi } from "../../support/test-api.ts";

const api = await useApi();
const limits = { maxWebhooks: 5 };
const limited = await startTestApi({ databaseUrl: api.databaseUrl, limits });
const other = await startTestApi({ databaseUrl: api.databaseUrl, limits });
afterAll(async () => {
  await other.stop();
  await limited.stop();
});

const create = async (key: string, url: string, on: TestApi = api) =>
  (await on.rest("POST", "/api/webhook", { key, json: { process: 1, url } })).envelope;

test("§4.2.1: a webhook that another key registered is returned with a warning and nothing of its owner", async () => {
  const [first, second] = [await api.key({ name: "First owner" }), await api.key()];
  const url = freshUrl();
  const made = await create(first.secret, url);
  expect([made.Warnings, (await create(first.secret, url)).Warnings]).toEqual([[], []]);
  const found = await create(second.secret, url);
  expect(found).toMatchObject({ Success: true, Data: made.Data });
  expect(found.Warnings).toEqual([
    `webhook ${made.Data.Id} was registered for this event type and URL before, with another API key; nothing was changed`,
  ]);
  expect(JSON.stringify(found)).not.toMatch(new RegExp(`First owner|${first.id}`));
});

test("a key of an app that finds another app's webhook is warned that it gets no secret of it", async () => {
  const { secret } = await api.key({ installedAppId: await api.app() });
  const url = freshUrl();
  const made = await create(api.adminKey, url);
  const found = await api.as(secret).webhooks.createWebhook({ process: 1, url });
  expect(found).toMatchObject({ created: false, webhook: { id: BigInt(made.Data.Id), apiKeyId: "" } });
  expect(found.warnings).toEqual([expect.stringContaining("register another URL for a webhook of your own")]);
  expect((await create(secret, url)).Warnings).toEqual(found.warnings);
});

test("§4.2.1: beyond MAX_WEBHOOKS a registration is refused with what to do, also of many over two servers; a registered webhook is returned", async () => {
  await api.context.db.raw("truncate webhooks, processes cascade");
  const calls = Array.from({ length: 30 }, (_, n) => failure((n % 2 === 0 ? limited : other).register()));
  const refusals = (await Promise.all(calls)).flatMap((error) => error?.code ?? []);
  expect(refusals).toEqual(Array(25).fill(Code.FailedPrecondition));
  const { webhooks } = await api.webhooks.listWebhooks({});
  expect(webhooks).toHaveLength(5);
  const [first, second] = webhooks;
  expect((await create(api.adminKey, freshUrl(), limited)).Warnings).toEqual([
    expect.stringMatching(/^5 webhooks are registered.*delete unused ones.*MAX_WEBHOOKS$/),
  ]);
  const found = await create(api.adminKey, second?.url as string, limited);
  expect(found).toMatchObject({ Success: true, Data: { Id: Number(second?.id) } });
  await api.webhooks.deleteWebhook({ webhookId: first?.id as bigint });
  const { secret } = await api.key();
  await limited.register({ key: secret });
  await expectRefused(limited.register({ key: secret }), Code.FailedPrecondition);
});
