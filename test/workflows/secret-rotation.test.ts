import { randomBytes } from "node:crypto";
import { Code } from "@connectrpc/connect";
import { Webhook } from "standardwebhooks";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { isAuthentic } from "../../docs/examples/verify-public-key.ts";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import { createSecretBox, WEBHOOK_SECRET_PURPOSE } from "../../src/db/webhooks/secret-box.ts";
import { failure } from "../support/failure.ts";
import { startTestService, type TestService, WOKEN } from "../support/test-service.ts";

const secretKey = randomBytes(32);
let service: TestService;
beforeAll(async () => {
  service = await startTestService({ ...WOKEN, SECRET_KEY: secretKey.toString("base64") });
});
afterAll(() => service.stop());
afterEach(() => service.removeWebhooks());

test("after a rotation deliveries satisfy receivers with the new secret and with the old one, until that has expired", async () => {
  const receiver = await service.receiver();
  const webhookId = await service.register(`${receiver.url}/rotated`);
  const { secret: old } = await service.webhooks.getWebhookSecret({ webhookId });
  const deliver = async () => {
    const { eventId } = await service.publish();
    await service.untilFinal(eventId);
    const request = receiver.received.at(-1);
    return (secret: string) =>
      new Webhook(secret).verify(request?.body ?? "", request?.headers as Record<string, string>);
  };
  const before = await deliver();
  expect(() => before(old)).not.toThrow();

  const { secret: next } = await service.webhooks.rotateWebhookSecret({ webhookId });
  const between = await deliver();
  expect(() => between(next)).not.toThrow();
  expect(() => between(old)).not.toThrow();

  await service.db.raw("update webhooks set old_secrets_expire = array[now()] where id = ?", [
    String(webhookId),
  ]);
  const after = await deliver();
  expect(() => after(next)).not.toThrow();
  expect(() => after(old)).toThrow();
});

test("deliveries are signed with a secret that an earlier version sealed, and not with one of another webhook", async () => {
  const receiver = await service.receiver();
  const register = (path: string) => service.register(`${receiver.url}/${path}`);
  const [legacy, a, b] = [await register("legacy"), await register("a"), await register("b")];
  const bytes = randomBytes(32);
  const sealed = createSecretBox(secretKey).seal(bytes, WEBHOOK_SECRET_PURPOSE);
  await service.db.raw("update webhooks set secret = ? where id = ?", [sealed, String(legacy)]);
  // Opened before they are swapped, so that what a process keeps in memory is no help.
  const first = await service.publish();
  const states = async (eventId: string) =>
    new Map((await service.untilFinal(eventId)).map(({ webhookId, state }) => [webhookId, state]));
  const before = await states(first.eventId);
  for (const id of [legacy, a, b]) expect(before.get(id)).toBe(DeliveryState.DELIVERED);
  const request = receiver.received.find(({ path }) => path === "/legacy");
  const verified = () =>
    new Webhook(bytes.toString("base64")).verify(
      request?.body ?? "",
      request?.headers as Record<string, string>,
    );
  expect(verified).not.toThrow();

  await service.db.raw(
    "update webhooks w set secret = o.secret from webhooks o where w.id in (:a, :b) and o.id in (:a, :b) and w.id <> o.id",
    { a: String(a), b: String(b) },
  );
  const second = await service.publish();
  const after = await states(second.eventId);
  expect(after.get(legacy)).toBe(DeliveryState.DELIVERED);
  for (const id of [a, b]) expect(after.get(id)).toBe(DeliveryState.FAILED);
  const errors = await service.db("all_attempts").whereNotNull("error").distinct().pluck("error");
  expect(errors).toEqual([expect.stringContaining("signing secret cannot be decrypted")]);
});

test("a webhook with a key pair also signs for its public key, and others send what they sent before", async () => {
  const receiver = await service.receiver();
  const [, signed] = [
    await service.register(`${receiver.url}/plain`),
    await service.register(`${receiver.url}/signed`),
  ];
  const { keyPairs } = await service.webhooks.rotateWebhookKeyPair({ webhookId: signed });
  const old = keyPairs[0]?.publicKey as string;
  const { secret } = await service.webhooks.getWebhookSecret({ webhookId: signed });
  const deliver = async () => {
    const { eventId } = await service.publish();
    const deliveries = await service.untilFinal(eventId);
    const sent = (path: string) => {
      const found = receiver.received.findLast((each) => each.path === path);
      if (!found) throw new Error(`nothing arrived at ${path}`);
      return found;
    };
    expect(sent("/plain").headers["webhook-signature"]).toMatch(/^v1,\S+$/);
    const id = deliveries.find(({ webhookId }) => webhookId === signed)?.id as string;
    return { ...sent("/signed"), id };
  };

  const first = await deliver();
  expect(first.headers["webhook-signature"]).toMatch(/^v1,\S+ v1a,\S+$/);
  new Webhook(secret).verify(first.body, first.headers as Record<string, string>);
  expect(isAuthentic(old, first.headers, first.body)).toBe(true);
  expect(isAuthentic(old, first.headers, `${first.body} `)).toBe(false);
  const late = { ...first.headers, "webhook-timestamp": "1700000000" };
  expect(isAuthentic(old, late, first.body)).toBe(false);
  // The log shows the signature that was sent.
  const { attempts } = await service.deliveries.getDelivery({ deliveryId: first.id });
  expect(attempts[0]?.signatureHeaders.map(({ value }) => value)).toContain(
    first.headers["webhook-signature"],
  );
  // A test request is signed like a delivery.
  await service.webhooks.tryWebhookRequest({ webhookId: signed });
  const tried = receiver.received.at(-1);
  expect(isAuthentic(old, tried?.headers ?? {}, tried?.body ?? "")).toBe(true);

  const rotated = await service.webhooks.rotateWebhookKeyPair({ webhookId: signed });
  const next = rotated.keyPairs[0]?.publicKey as string;
  const second = await deliver();
  for (const each of [next, old]) expect(isAuthentic(each, second.headers, second.body)).toBe(true);
  await service.webhooks.rotateWebhookKeyPair({ webhookId: signed, revokeOldKeyPairs: true });
  const third = await deliver();
  for (const each of [next, old]) expect(isAuthentic(each, third.headers, third.body)).toBe(false);
  await service.webhooks.deleteWebhookKeyPairs({ webhookId: signed });
  expect((await deliver()).headers["webhook-signature"]).toMatch(/^v1,\S+$/);
});

test("deliveries carry the webhook's own headers and credentials, which are tried first, masked, and encrypted at rest", async () => {
  const receiver = await service.receiver(({ headers }, response) => {
    if (headers.authorization === "Bearer right-token") return 200;
    response.writeHead(401).end("who is there?");
    return undefined;
  });
  const { webhooks } = service;
  const webhookId = await service.register(`${receiver.url}/settings`);
  const headers = [{ name: "X-Tenant", value: "4711" }];
  const bearer = (token?: string) => ({
    headers: [{ name: "X-Tenant" }],
    authentication: { case: "bearer" as const, value: token === undefined ? {} : { token } },
  });
  await webhooks.setWebhookRequestSettings({ webhookId, settings: { headers } });

  // What is tried is not stored.
  const wrong = await webhooks.tryWebhookRequest({ webhookId, settings: bearer("wrong-token") });
  expect(wrong).toMatchObject({ accepted: false, status: 401, responseStart: "who is there?" });
  const right = await webhooks.tryWebhookRequest({ webhookId, settings: bearer("right-token") });
  expect(right).toMatchObject({ accepted: true, status: 200 });
  expect(receiver.received.map(({ headers: { "x-tenant": tenant } }) => tenant)).toEqual(["4711", "4711"]);
  expect(receiver.received.at(-1)?.headers).toMatchObject({ "x-service-webhook-test": "true" });
  const { secret } = await webhooks.getWebhookSecret({ webhookId });
  const tried = receiver.received.at(-1);
  new Webhook(secret).verify(tried?.body ?? "", tried?.headers as Record<string, string>);
  expect((await webhooks.getWebhookRequestSettings({ webhookId })).settings).toMatchObject({
    headerNames: ["X-Tenant"],
    hasBearerToken: false,
  });

  await webhooks.setWebhookRequestSettings({ webhookId, settings: bearer("right-token") });
  const deliver = async () => {
    const { eventId } = await service.publish();
    return (await service.untilFinal(eventId)).find((each) => each.webhookId === webhookId)?.state;
  };
  expect(await deliver()).toBe(DeliveryState.DELIVERED);
  expect(receiver.received.at(-1)?.headers).toMatchObject({
    authorization: "Bearer right-token",
    "x-tenant": "4711",
  });

  // A value that is left out is kept; one of another user name is not.
  const basic = { case: "basic" as const, value: { username: "shop", password: "p:w" } };
  await webhooks.setWebhookRequestSettings({ webhookId, settings: { headers, authentication: basic } });
  const kept = { headers, authentication: { case: "basic" as const, value: { username: "shop" } } };
  await webhooks.tryWebhookRequest({ webhookId, settings: kept });
  expect(receiver.received.at(-1)?.headers.authorization).toBe(`Basic ${btoa("shop:p:w")}`);
  const other = { authentication: { case: "basic" as const, value: { username: "other" } } };
  const refused = await failure(webhooks.setWebhookRequestSettings({ webhookId, settings: other }));
  expect(refused?.rawMessage).toContain("settings.basic.password is required");
  const { settings } = await webhooks.getWebhookRequestSettings({ webhookId });
  expect(settings).toMatchObject({ headerNames: ["X-Tenant"], basicUsername: "shop", hasBearerToken: false });
  const { rows: stored } = await service.db.raw(
    "select request_settings as sealed from webhooks where id = ?",
    [String(webhookId)],
  );
  expect(stored[0].sealed.includes("X-Tenant")).toBe(false);

  // Bound to the webhook: of another one they cannot be opened, and the delivery fails with the reason.
  const copy = await service.register(`${receiver.url}/copied`);
  await service.db.raw("update webhooks set request_settings = ? where id = ?", [
    stored[0].sealed,
    String(copy),
  ]);
  expect((await failure(webhooks.getWebhookRequestSettings({ webhookId: copy })))?.code).toBe(
    Code.FailedPrecondition,
  );
  const { eventId } = await service.publish();
  const failed = (await service.untilFinal(eventId)).find((each) => each.webhookId === copy);
  const { attempts } = await service.deliveries.getDelivery({ deliveryId: failed?.id as string });
  expect(attempts.at(-1)?.error).toContain("headers and credentials cannot be decrypted");
  await webhooks.setWebhookRequestSettings({ webhookId: copy });
  expect((await webhooks.getWebhookRequestSettings({ webhookId: copy })).settings?.headerNames).toEqual([]);
});

test("headers that HTTP, the contract or Standard Webhooks own are refused, and no error repeats a value", async () => {
  const webhookId = await service.register("https://receiver.example/refused");
  const { webhooks } = service;
  const refused = async (settings: Parameters<typeof webhooks.setWebhookRequestSettings>[0]["settings"]) => {
    const error = await failure(webhooks.setWebhookRequestSettings({ webhookId, settings }));
    expect(error?.code).toBe(Code.InvalidArgument);
    expect(error?.rawMessage).not.toContain("hush");
    return error?.rawMessage;
  };
  const owned = [
    "Host",
    "content-type",
    "CONTENT-LENGTH",
    "X-Service-UserId",
    "webhook-signature",
    "User-Agent",
  ];
  for (const name of [...owned, "Proxy-Authorization", "Transfer-Encoding", "", "a b", "ä", "x\r\ny"]) {
    expect(await refused({ headers: [{ name, value: "hush" }] }), name).toContain("settings.headers[0].name");
  }
  for (const value of ["hush\r\nX-Evil: 1", " hush", "hush ", "hüsh", "", "h".repeat(4_097)]) {
    expect(await refused({ headers: [{ name: "X-A", value }] }), value).toContain(
      "settings.headers[0].value must",
    );
  }
  const twice = [
    { name: "X-A", value: "hush" },
    { name: "x-a", value: "hush" },
  ];
  expect(await refused({ headers: twice })).toContain("send each name once");
  const bearer = { case: "bearer" as const, value: { token: "hush hush" } };
  expect(await refused({ authentication: bearer })).toContain("settings.bearer.token must");
  const both = { headers: [{ name: "authorization", value: "hush" }], authentication: bearer };
  expect(await refused(both)).toContain("must not contain Authorization");
  const basic = { case: "basic" as const, value: { username: "a:b", password: "hush" } };
  expect(await refused({ authentication: basic })).toContain("must not contain a colon");
  const many = Array.from({ length: 21 }, (_, n) => ({ name: `X-${n}`, value: "hush" }));
  expect(await refused({ headers: many })).toContain("settings.headers must be at most 20");
});
