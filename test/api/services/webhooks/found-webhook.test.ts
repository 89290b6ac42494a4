import { expect, test } from "vitest";
import { freshUrl, useApi } from "../../../support/test-api.ts";

const api = await useApi();

const create = async (key: string, url: string) =>
  (await api.rest("POST", "/api/webhook", { key, json: { process: 1, url } })).envelope;

test("§4.2.1: creating a webhook that another key registered returns it, with a warning and nothing of its owner", async () => {
  const [first, second] = [await api.key({ name: "First owner" }), await api.key()];
  const url = freshUrl();
  const made = await create(first.secret, url);
  const found = await create(second.secret, url);
  expect(found).toMatchObject({ Success: true, Data: made.Data });
  expect(found.Warnings).toEqual([
    `webhook ${made.Data.Id} was registered for this event type and URL before, with another API key; nothing was changed`,
  ]);
  expect(JSON.stringify(found)).not.toContain("First owner");
  expect(JSON.stringify(found)).not.toContain(first.id);
});

test("a webhook that the key itself registered, now or before, is returned without a warning", async () => {
  const { secret } = await api.key();
  const url = freshUrl();
  expect((await create(secret, url)).Warnings).toEqual([]);
  expect((await create(secret, url)).Warnings).toEqual([]);
});

test("a key of an app that finds another app's webhook is warned that it gets no secret of it", async () => {
  const { secret } = await api.key({ installedAppId: await api.app() });
  const url = freshUrl();
  const made = await create(api.adminKey, url);
  const client = api.as(secret).webhooks;
  const found = await client.createWebhook({ process: 1, url });
  expect(found).toMatchObject({ created: false, webhook: { id: BigInt(made.Data.Id), apiKeyId: "" } });
  expect(found.warnings).toEqual([expect.stringContaining("register another URL for a webhook of your own")]);
  const { envelope } = await api.rest("POST", "/api/webhook", { key: secret, json: { process: 1, url } });
  expect(envelope.Warnings).toEqual(found.warnings);
});
