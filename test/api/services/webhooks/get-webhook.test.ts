import { Code } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { Permission } from "../../../../gen/webhook/v1/options_pb.ts";
import { WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { failure } from "../../../support/failure.ts";
import { useApi } from "../../../support/test-api.ts";

const api = await useApi();
const webhooks = api.client(WebhookService);

test("one webhook is told of as the list tells of it", async () => {
  const made = await webhooks.createWebhook({ process: 1, url: "https://receiver.example/one" });
  await webhooks.createWebhook({ process: 2, url: "https://receiver.example/one" });
  const webhookId = made.webhook?.id as bigint;
  const { webhook } = await webhooks.getWebhook({ webhookId });
  expect(webhook).toEqual((await webhooks.listWebhooks({})).webhooks.find(({ id }) => id === webhookId));
});

test("a webhook that was deleted is not found, nor is one that never was", async () => {
  const { webhook } = await webhooks.createWebhook({ process: 1, url: "https://receiver.example/gone" });
  const webhookId = webhook?.id as bigint;
  await webhooks.deleteWebhook({ webhookId });
  for (const id of [webhookId, 9_999_999n]) {
    const refused = await failure(webhooks.getWebhook({ webhookId: id }));
    expect(refused?.code).toBe(Code.NotFound);
    expect(refused?.rawMessage).toContain(`there is no webhook ${id}`);
  }
});

test("a key that may not read is not told of a webhook", async () => {
  const { secret } = await api.key({ permissions: [Permission.PUBLISH_EVENTS] });
  const refused = await failure(
    webhooks.getWebhook({ webhookId: 1n }, { headers: { "X-Service-Key": secret } }),
  );
  expect(refused?.code).toBe(Code.PermissionDenied);
});
