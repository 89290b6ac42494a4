import { randomBytes } from "node:crypto";
import { Webhook } from "standardwebhooks";
import { expect, onTestFinished, test } from "vitest";
import { startReceiver } from "../../demo/receiver.ts";
import { createSecretBox, webhookSecretContext } from "../../src/db/webhooks/secret-box.ts";
import { createTestDatabase } from "../support/database.ts";
import { startTestService, type TestService, trustedAuthority } from "../support/test-service.ts";

test("SECRET_KEY is changed process by process, as docs/security.md says, and every request on the way is signed right", async () => {
  const database = await createTestDatabase();
  const receiver = await startReceiver(await (await trustedAuthority()).issue(["localhost"]));
  const running = new Set<TestService>();
  onTestFinished(async () => {
    for (const service of running) await service.stop();
    await receiver.close();
    await database.drop();
  });
  const [former, next] = [randomBytes(32), randomBytes(32)];
  /** Starts an API, whose test requests are signed as deliveries are. */
  async function start(current: Buffer, previous?: Buffer): Promise<TestService> {
    const service = await startTestService({
      ROLE: "api",
      DATABASE_URL: database.url,
      SECRET_KEY: current.toString("base64"),
      SECRET_KEY_PREVIOUS: previous?.toString("base64") ?? "",
    });
    running.add(service);
    return service;
  }

  let service = await start(former);
  const webhookId = await service.register(`${receiver.url}/keys`);
  const { secret } = await service.webhooks.getWebhookSecret({ webhookId });
  async function send({ webhooks }: TestService): Promise<void> {
    expect(await webhooks.tryWebhookRequest({ webhookId })).toMatchObject({ accepted: true });
    const request = receiver.received.at(-1);
    new Webhook(secret).verify(request?.body ?? "", request?.headers as Record<string, string>);
  }
  await send(service);

  /** Puts a process with these keys in the place of the one that runs; both work for a while. */
  async function replace(current: Buffer, previous?: Buffer): Promise<void> {
    const successor = await start(current, previous);
    for (const by of [service, successor]) await send(by);
    // What the outgoing process makes last must be readable to the incoming one.
    const late = await service.register(`${receiver.url}/${receiver.received.length}`);
    await successor.webhooks.getWebhookSecret({ webhookId: late });
    running.delete(service);
    await service.stop();
    service = successor;
  }
  await replace(former, next);
  await replace(next, former);
  // What the last process with the former key made is sealed anew within ten minutes, or by a start.
  await replace(next, former);
  const both = createSecretBox(next, [former]);
  await expect
    .poll(async () => {
      const sealed = await service.db("webhooks").select("id", "secret");
      return sealed.filter((row) => both.reseal(row.secret, webhookSecretContext(row.id)) !== null);
    })
    .toEqual([]);
  await replace(next);
  const row = await service.db("webhooks").where({ id: webhookId }).first("secret");
  const bytes = createSecretBox(next).open(row?.secret as Buffer, webhookSecretContext(webhookId));
  expect(`whsec_${bytes.toString("base64")}`).toBe(secret);
  await expect(start(former)).rejects.toThrow("SECRET_KEY and SECRET_KEY_PREVIOUS do not contain the key");
});
