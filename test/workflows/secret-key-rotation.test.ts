import { randomBytes } from "node:crypto";
import { Webhook } from "standardwebhooks";
import { expect, onTestFinished, test } from "vitest";
import { createSecretBox, webhookSecretContext } from "../../src/webhooks/secret-box.ts";
import { createTestDatabase } from "../support/database.ts";
import { aReceiver } from "../support/receivers.ts";
import { startTestService, type TestService } from "../support/test-service.ts";

test("a SECRET_KEY is replaced with the former one in SECRET_KEY_PREVIOUS, until the service has re-encrypted all secrets", async () => {
  const database = await createTestDatabase();
  onTestFinished(() => database.drop());
  const receiver = await aReceiver();
  const [former, next] = [randomBytes(32), randomBytes(32)];
  /** Starts an API, whose test requests are signed as deliveries are. */
  async function start(current: Buffer, previous?: Buffer): Promise<TestService> {
    const service = await startTestService({
      ROLE: "api",
      DATABASE_URL: database.url,
      SECRET_KEY: current.toString("base64"),
      SECRET_KEY_PREVIOUS: previous?.toString("base64") ?? "",
    });
    onTestFinished(() => service.stop());
    return service;
  }
  const before = await start(former);
  const webhookId = await before.register(`${receiver.url}/keys`);
  const { secret } = await before.webhooks.getWebhookSecret({ webhookId });
  async function expectSignedRight({ webhooks }: TestService): Promise<void> {
    expect(await webhooks.tryWebhookRequest({ webhookId })).toMatchObject({ accepted: true });
    const request = receiver.received.at(-1);
    new Webhook(secret).verify(request?.body ?? "", request?.headers as Record<string, string>);
  }
  await expectSignedRight(before);
  const refusal = "SECRET_KEY and SECRET_KEY_PREVIOUS do not contain the key";
  await expect(start(next)).rejects.toThrow(refusal);
  // The new key is known before it is used.
  await expectSignedRight(await start(former, next));
  await expectSignedRight(await start(next, former));
  const box = createSecretBox(next, [former]);
  await expect
    .poll(async () => {
      const row = await before.db("webhooks").where({ id: webhookId }).first("secret");
      return box.reseal(row?.secret as Buffer, webhookSecretContext(webhookId));
    })
    .toBeNull();
  await expectSignedRight(await start(next));
});
