import { randomBytes } from "node:crypto";
import { Webhook } from "standardwebhooks";
import { expect, onTestFinished, test } from "vitest";
import { startReceiver } from "../../demo/receiver.ts";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import { openDatabase, rows } from "../../src/db/database.ts";
import { createSecretBox, webhookSecretContext } from "../../src/db/webhooks/secret-box.ts";
import { createTestDatabase } from "../support/database.ts";
import { startTestService, type TestService, trustedAuthority, WOKEN } from "../support/test-service.ts";

test("SECRET_KEY is changed process by process, as docs/security.md says, and every delivery on the way is signed right", {
  timeout: 120_000,
}, async () => {
  const database = await createTestDatabase();
  const db = openDatabase(database.url, { max: 2 });
  const receiver = await startReceiver(await (await trustedAuthority()).issue(["localhost"]));
  const running = new Set<TestService>();
  onTestFinished(async () => {
    for (const service of running) await service.stop();
    await receiver.close();
    await db.destroy();
    await database.drop();
  });
  const [former, next] = [randomBytes(32), randomBytes(32)];
  async function start(current: Buffer, previous: Buffer | null): Promise<TestService> {
    const service = await startTestService({
      ...WOKEN,
      DATABASE_URL: database.url,
      SECRET_KEY: current.toString("base64"),
      SECRET_KEY_PREVIOUS: previous?.toString("base64") ?? "",
    });
    running.add(service);
    return service;
  }

  let service = await start(former, null);
  const webhookId = await service.register(`${receiver.url}/keys`);
  const { secret } = await service.webhooks.getWebhookSecret({ webhookId });
  /** Publishes by one process, which delivers. */
  async function deliver(by: TestService): Promise<void> {
    const { eventId } = await by.publish();
    const [delivery] = await by.untilFinal(eventId);
    const requests = receiver.received.filter(({ headers }) => headers["webhook-id"] === delivery?.id);
    expect([delivery?.state, requests.length]).toEqual([DeliveryState.DELIVERED, 1]);
    const [request] = requests;
    new Webhook(secret).verify(request?.body ?? "", request?.headers as Record<string, string>);
  }
  await deliver(service);

  /** Puts a process with these keys in the place of the one that runs; both work for a while. */
  async function replace(current: Buffer, previous: Buffer | null): Promise<void> {
    const successor = await start(current, previous);
    for (const by of [service, successor]) await deliver(by);
    // What the outgoing process makes last must be readable to the incoming one.
    const late = await service.register(`${receiver.url}/late-${running.size}`, { process: 2 });
    await successor.webhooks.getWebhookSecret({ webhookId: late });
    running.delete(service);
    await service.stop();
    service = successor;
    await deliver(service);
  }
  await replace(former, next);
  await replace(next, former);
  // What the last process with the former key made is sealed anew within ten minutes, or by a start.
  await replace(next, former);
  const box = createSecretBox(next);
  await expect
    .poll(async () => {
      const sealed = await rows<{ id: bigint; secret: Buffer }>(db, "select id, secret from webhooks");
      const formerly = createSecretBox(next, [former]);
      return sealed.filter((row) => formerly.reseal(row.secret, webhookSecretContext(row.id)) !== null)
        .length;
    })
    .toBe(0);
  await replace(next, null);
  const [first] = await rows<{ secret: Buffer }>(db, "select secret from webhooks order by id limit 1");
  const bytes = box.open(first?.secret as Buffer, webhookSecretContext(webhookId));
  expect(`whsec_${bytes.toString("base64")}`).toBe(secret);
  await expect(start(former, null)).rejects.toThrow(
    "SECRET_KEY and SECRET_KEY_PREVIOUS do not contain the key",
  );
});
