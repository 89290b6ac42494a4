import { afterAll, expect, test } from "vitest";
import { freshUrl, startTestApi } from "../../support/test-api.ts";

const asked: string[] = [];
const api = await startTestApi({
  warningsOf: async (url) => {
    asked.push(url);
    return [`no such host in ${url}`];
  },
});
afterAll(() => api.stop());

test("a registration whose host cannot be reached succeeds with a warning, over gRPC and REST", async () => {
  const [first, second, third] = [freshUrl(), freshUrl(), freshUrl()];
  const { webhook, created, warnings } = await api.webhooks.createWebhook({ process: 1, url: first });
  expect([created, warnings]).toEqual([true, [`no such host in ${first}`]]);
  const { status, envelope } = await api.rest("POST", "/api/webhook", { json: { process: 1, url: second } });
  expect([status, envelope]).toMatchObject([200, { Success: true, Warnings: [`no such host in ${second}`] }]);
  const made = await api.endpoints.createEndpoint({ processes: [1, 2], url: third });
  expect([made.endpoint?.webhooks.length, made.warnings]).toEqual([2, [`no such host in ${third}`]]);
  const url = freshUrl();
  const updated = await api.webhooks.updateWebhook({ webhookId: webhook?.id as bigint, url });
  expect([updated.webhook?.url, updated.warnings]).toEqual([url, [`no such host in ${url}`]]);
  const { secret } = await api.key();
  const found = await api.as(secret).webhooks.createWebhook({ process: 1, url });
  expect(found.warnings).toEqual([expect.stringContaining("another API key"), `no such host in ${url}`]);
});

test("an update without a URL, and a refused URL, look nothing up", async () => {
  const { webhook } = await api.webhooks.createWebhook({ process: 1, url: freshUrl() });
  asked.length = 0;
  const { warnings } = await api.webhooks.updateWebhook({
    webhookId: webhook?.id as bigint,
    name: "Renamed",
  });
  expect(warnings).toEqual([]);
  await expect(api.webhooks.createWebhook({ process: 1, url: "https://10.0.0.1/" })).rejects.toThrow();
  expect(asked).toEqual([]);
});
