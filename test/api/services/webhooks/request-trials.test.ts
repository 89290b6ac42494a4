import { Code, createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { rows } from "../../../../src/db/database.ts";
import { ALL_PERMISSIONS, createApiKey } from "../../../../src/db/keys/api-keys.ts";
import { keyedTransport, startTestService, type TestService } from "../../../support/test-service.ts";

let service: TestService;
beforeAll(async () => {
  service = await startTestService({ ROLE: "api", DELIVERY_TIMEOUT: "60s" });
});
afterAll(() => service.stop());

test("of one key, two test requests are in flight: endpoints that hang delay no other key's", async () => {
  const held: (() => void)[] = [];
  let hangs = true;
  let [inFlight, most] = [0, 0];
  const hanging = await service.receiver(async () => {
    inFlight += 1;
    most = Math.max(most, inFlight);
    if (hangs) await new Promise<void>((resolve) => held.push(resolve));
    inFlight -= 1;
    return 200;
  });
  const well = await service.receiver();
  const { webhooks } = service;
  const webhookId = await service.register(`${hanging.url}/`);
  const tried = Array.from({ length: 8 }, () => webhooks.tryWebhookRequest({ webhookId }));
  const answer = () => {
    hangs = false;
    for (const respond of held) respond();
  };
  onTestFinished(answer);
  await expect.poll(() => held.length).toBeGreaterThanOrEqual(2);

  const { secret } = await createApiKey(service.db, { name: "other", permissions: ALL_PERMISSIONS });
  const other = createClient(WebhookService, keyedTransport(service.grpcPort, secret));
  const { webhook } = await other.createWebhook({ process: 1, url: `${well.url}/` });
  for (let n = 0; n < 3; n += 1) {
    expect(await other.tryWebhookRequest({ webhookId: webhook?.id as bigint })).toMatchObject({
      accepted: true,
    });
  }

  answer();
  for (const { accepted } of await Promise.all(tried)) expect(accepted).toBe(true);
  expect(most).toBe(2);
});

test("a test request with stored credentials is refused if the webhook was moved since they were read", async () => {
  const { db, webhooks } = service;
  const [first, second] = [await service.receiver(), await service.receiver()];
  const webhookId = await service.register(`${first.url}/`);
  await webhooks.setWebhookRequestSettings({
    webhookId,
    settings: { authentication: { case: "bearer", value: { token: "secret" } } },
  });
  const moving = await db.transaction();
  onTestFinished(async () => {
    if (!moving.isCompleted()) await moving.rollback();
  });
  // The trial has read the settings when it writes its audit entry.
  await rows(moving, "lock table audit_log in exclusive mode");
  const tried = webhooks
    .tryWebhookRequest({ webhookId, settings: { authentication: { case: "bearer", value: {} } } })
    .catch((error) => error);
  const waiting = `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
    and query like '%insert into audit_log%'`;
  await expect.poll(async () => (await rows(db, waiting)).length).toBe(1);
  await moving("webhooks")
    .where({ id: webhookId })
    .update({ target_url: `${second.url}/`, request_settings: null, revision: moving.raw("revision + 1") });
  await moving.commit();
  expect(await tried).toMatchObject({ code: Code.Aborted, message: expect.stringContaining("was changed") });
  expect([first.received, second.received]).toEqual([[], []]);
});
