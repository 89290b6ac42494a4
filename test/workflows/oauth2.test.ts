import { createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Receiver } from "../../demo/receiver.ts";
import { AuditService } from "../../gen/webhook/v1/audit_pb.ts";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import { failure } from "../support/failure.ts";
import { startTestService, type TestService, WOKEN } from "../support/test-service.ts";

const SECRET = "client-secret-4711";
let service: TestService;
beforeAll(async () => {
  service = await startTestService({ ...WOKEN });
});
afterAll(() => service.stop());

/** An authorization server that issues `<client id>-token-1`, `<client id>-token-2` and on, once it is told. */
async function authorizationServer(until: Promise<unknown> = Promise.resolve()): Promise<Receiver> {
  let issued = 0;
  return service.receiver(async ({ headers }, response) => {
    await until;
    const [id, secret] = atob(headers.authorization?.split(" ")[1] ?? "").split(":");
    const isRight = decodeURIComponent(secret ?? "") === SECRET;
    response.writeHead(isRight ? 200 : 401, { "content-type": "application/json" });
    if (isRight) issued += 1;
    const token = { access_token: `${id}-token-${issued}`, token_type: "Bearer", expires_in: 3_600 };
    response.end(JSON.stringify(isRight ? token : { error: "invalid_client" }));
    return undefined;
  });
}

const oauth2 = (server: Receiver, clientId: string, clientSecret: string | undefined = SECRET) => ({
  headers: [{ name: "X-Tenant", value: "4711" }],
  authentication: {
    case: "oauth2" as const,
    value: {
      tokenUrl: `${server.url}/token`,
      clientId,
      scope: "orders",
      ...(clientSecret === undefined ? {} : { clientSecret }),
    },
  },
});

const attemptsOf = async (deliveryId: string) =>
  (await service.deliveries.getDelivery({ deliveryId })).attempts;

test("deliveries carry an access token, which is fetched once for all of them", async () => {
  const release = Promise.withResolvers<void>();
  const server = await authorizationServer(release.promise);
  const receiver = await service.receiver();
  const webhookId = await service.register(`${receiver.url}/orders`);
  await service.webhooks.setWebhookRequestSettings({ webhookId, settings: oauth2(server, "many") });
  const first = await service.publish();
  const others = Array.from({ length: 20 }, () => service.publish());
  const events = [first, ...(await Promise.all(others))];
  await expect.poll(() => server.received.length).toBe(1);
  expect(receiver.received).toEqual([]);
  release.resolve();
  for (const { eventId } of events) {
    const [delivery] = await service.untilFinal(eventId);
    expect(delivery).toMatchObject({ state: DeliveryState.DELIVERED, attemptCount: 1 });
  }
  expect(server.received).toHaveLength(1);
  expect(new URLSearchParams(server.received[0]?.body).get("scope")).toBe("orders");
  for (const { headers } of receiver.received) {
    expect(headers).toMatchObject({ authorization: "Bearer many-token-1", "x-tenant": "4711" });
  }
  await service.removeWebhooks();
});

test("a 401 makes the attempt fail, and the next one uses another token", async () => {
  const server = await authorizationServer();
  const receiver = await service.receiver(({ headers }) =>
    headers.authorization === "Bearer renewed-token-2" ? 200 : 401,
  );
  const webhookId = await service.register(`${receiver.url}/orders`);
  await service.webhooks.setWebhookRequestSettings({ webhookId, settings: oauth2(server, "renewed") });
  const [delivery] = await service.untilFinal((await service.publish()).eventId);
  expect(delivery).toMatchObject({ state: DeliveryState.DELIVERED, attemptCount: 2 });
  expect((await attemptsOf(delivery?.id as string)).map(({ status }) => status)).toEqual([401, 200]);
  expect(receiver.received).toHaveLength(2);
  expect(server.received).toHaveLength(2);
  await service.removeWebhooks();
});

test("a receiver that refuses every token causes one renewal, and the delivery fails", async () => {
  const server = await authorizationServer();
  const receiver = await service.receiver(() => 401);
  const webhookId = await service.register(`${receiver.url}/orders`);
  await service.webhooks.setWebhookRequestSettings({ webhookId, settings: oauth2(server, "refused") });
  const [delivery] = await service.untilFinal((await service.publish()).eventId);
  expect(delivery).toMatchObject({ state: DeliveryState.FAILED, attemptCount: 4 });
  expect(receiver.received).toHaveLength(4);
  expect(server.received).toHaveLength(2);
  await service.removeWebhooks();
});

test("without a token nothing is sent: attempts fail with the token endpoint's answer, and secrets stay secret", async () => {
  const server = await authorizationServer();
  const receiver = await service.receiver();
  const webhookId = await service.register(`${receiver.url}/orders`);
  await service.webhooks.setWebhookRequestSettings({
    webhookId,
    settings: oauth2(server, "wrong", "wrong-secret"),
  });
  const [delivery] = await service.untilFinal((await service.publish()).eventId);
  expect(delivery).toMatchObject({ state: DeliveryState.FAILED, attemptCount: 4 });
  expect(receiver.received).toEqual([]);
  // Attempts within five seconds share a failed request.
  expect(server.received).toHaveLength(1);
  const attempts = await attemptsOf(delivery?.id as string);
  for (const { error, signatureHeaders } of attempts) {
    expect(error).toBe(`token endpoint localhost:${server.port} answered 401 (invalid_client)`);
    expect(signatureHeaders).toEqual([]);
  }
  const { rows } = await service.db.raw("select to_jsonb(a)::text as text from all_attempts a");
  for (const { text } of rows) expect(text).not.toMatch(/-secret|-token-\d/);
  await service.removeWebhooks();
});

test("OAuth 2.0 is tried before it is saved, masked when it is read, and its secret kept for its token URL only", async () => {
  const { webhooks } = service;
  const [server, other] = [await authorizationServer(), await authorizationServer()];
  const receiver = await service.receiver(({ headers }) =>
    headers.authorization?.startsWith("Bearer tried-token") ? 200 : 401,
  );
  const webhookId = await service.register(`${receiver.url}/orders`);
  const wrong = await webhooks.tryWebhookRequest({ webhookId, settings: oauth2(server, "tried", "wrong") });
  expect(wrong).toMatchObject({
    accepted: false,
    error: `token endpoint localhost:${server.port} answered 401 (invalid_client)`,
  });
  expect(receiver.received).toEqual([]);
  const right = await webhooks.tryWebhookRequest({ webhookId, settings: oauth2(server, "tried") });
  expect(right).toMatchObject({ accepted: true, status: 200 });
  expect((await webhooks.getWebhookRequestSettings({ webhookId })).settings?.oauth2).toBeUndefined();

  const { settings } = await webhooks.setWebhookRequestSettings({
    webhookId,
    settings: oauth2(server, "tried"),
  });
  const masked = { tokenUrl: `${server.url}/token`, clientId: "tried", scope: "orders", secretInBody: false };
  expect(settings).toMatchObject({ headerNames: ["X-Tenant"], oauth2: masked });
  expect(JSON.stringify(settings)).not.toContain(SECRET);
  const stored = await service.db("webhooks").where({ id: webhookId }).first<{ request_settings: Buffer }>();
  expect(stored?.request_settings.includes(SECRET)).toBe(false);

  // Unset keeps the secret, but never for another token URL or client.
  const kept = { ...oauth2(server, "tried") };
  const { clientSecret: _, ...without } = kept.authentication.value;
  const keeping = { ...kept, authentication: { ...kept.authentication, value: without } };
  expect(await webhooks.tryWebhookRequest({ webhookId, settings: keeping })).toMatchObject({
    accepted: true,
  });
  for (const moved of [{ tokenUrl: `${other.url}/token` }, { clientId: "another" }]) {
    const value = { ...without, ...moved };
    const authentication = { case: "oauth2" as const, value };
    const refused = await failure(webhooks.tryWebhookRequest({ webhookId, settings: { authentication } }));
    expect(refused?.rawMessage).toContain("settings.oauth2.client_secret is required");
  }
  expect(other.received).toEqual([]);

  const { entries } = await createClient(AuditService, service.transport).listAuditEntries({
    targetId: String(webhookId),
  });
  const changed = entries.flatMap(({ changes }) => changes.map(({ field }) => field));
  expect(changed).toContain("oauth2_token_url");
  expect(
    JSON.stringify(entries, (_name, value) => (typeof value === "bigint" ? String(value) : value)),
  ).not.toContain(SECRET);
  await service.removeWebhooks();
});

test("a token URL obeys the rules for a webhook's URL", async () => {
  const webhookId = await service.register("https://receiver.example/token-url");
  const tried = async (tokenUrl: string) => {
    const authentication = {
      case: "oauth2" as const,
      value: { tokenUrl, clientId: "id", clientSecret: "s", scope: 'a  "b' },
    };
    return failure(service.webhooks.setWebhookRequestSettings({ webhookId, settings: { authentication } }));
  };
  expect((await tried("http://login.example/token"))?.rawMessage).toMatch(
    /settings\.oauth2\.token_url begins with http:\/\/; only https.*settings\.oauth2\.scope must have/,
  );
  expect((await tried("https://10.0.0.1/token"))?.rawMessage).toContain("10.0.0.1 is a private address");
  expect((await tried("https://login.example:25/token"))?.rawMessage).toContain("port 25");
  await service.removeWebhooks();
});
