import { type AddressInfo, createServer, type Server } from "node:net";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import { WebhookHealth } from "../../gen/webhook/v1/webhook_pb.ts";
import { startConnectProxy, startSocksProxy, type TestProxy } from "../delivery/proxy/proxies.ts";
import { startTestService, type TestService, WOKEN } from "../support/test-service.ts";

const PASSWORD = "proxy-password-4711";
const KINDS = [
  ["http", startConnectProxy],
  ["socks5", startSocksProxy],
] as const;

interface World {
  service: TestService;
  proxy: TestProxy;
}
const worlds = new Map<string, World>();
beforeAll(async () => {
  // One after the other: a busy machine starts two services no faster at once.
  for (const [scheme, start] of KINDS) {
    const proxy = await start({ credentials: `egress:${PASSWORD}` });
    const url = `${scheme}://egress:${PASSWORD}@127.0.0.1:${proxy.port}`;
    worlds.set(scheme, { service: await startTestService({ ...WOKEN, DELIVERY_PROXY: url }), proxy });
  }
});
afterAll(async () => {
  for (const { service, proxy } of worlds.values()) {
    await service.stop();
    await proxy.close();
  }
});

/** Takes the proxy's place: closes every connection, and counts them. */
async function deadProxy(port: number): Promise<{ tries: () => number; close(): Promise<unknown> }> {
  let tries = 0;
  const server: Server = createServer((socket) => {
    tries += 1;
    socket.on("error", () => {}).destroy();
  });
  await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
  expect((server.address() as AddressInfo).port).toBe(port);
  const close = () => new Promise((resolve) => server.close(resolve));
  onTestFinished(async () => {
    if (server.listening) await close();
  });
  return { tries: () => tries, close };
}

test.each(KINDS)("%s: deliveries, test requests and token requests go through the proxy", async (scheme) => {
  const { service, proxy } = worlds.get(scheme) as World;
  onTestFinished(() => service.removeWebhooks());
  proxy.targets.length = 0;
  const tokens = await service.receiver((_request, response) => {
    response.writeHead(200, { "content-type": "application/json" });
    response.end(JSON.stringify({ access_token: "token-1", token_type: "Bearer", expires_in: 3_600 }));
    return undefined;
  });
  const receiver = await service.receiver();
  const webhookId = await service.register(`${receiver.url}/orders`);
  const settings = {
    headers: [],
    authentication: {
      case: "oauth2" as const,
      value: { tokenUrl: `${tokens.url}/token`, clientId: "shop", clientSecret: "client-secret" },
    },
  };
  expect(await service.webhooks.tryWebhookRequest({ webhookId, settings })).toMatchObject({
    accepted: true,
  });
  const targets = [`127.0.0.1:${tokens.port}`, `127.0.0.1:${receiver.port}`];
  expect(proxy.targets).toEqual(targets);
  await service.webhooks.setWebhookRequestSettings({ webhookId, settings });
  const [delivery] = await service.untilFinal((await service.publish()).eventId);
  expect(delivery).toMatchObject({ state: DeliveryState.DELIVERED, attemptCount: 1 });
  expect(receiver.received.at(-1)?.headers.authorization).toBe("Bearer token-1");
  expect(proxy.targets).toEqual([...targets, ...targets]);
});

test.each(KINDS)(
  "%s: while the proxy is away, deliveries wait without an attempt, and arrive once it is back",
  async (scheme, start) => {
    const { service, proxy } = worlds.get(scheme) as World;
    onTestFinished(() => service.removeWebhooks());
    const receiver = await service.receiver(({ attempt }) => (attempt === 1 ? 200 : 500));
    const webhookId = await service.register(`${receiver.url}/orders`);
    const before = await service.untilFinal((await service.publish()).eventId);
    expect(before).toMatchObject([{ state: DeliveryState.DELIVERED }]);
    await proxy.close();
    const dead = await deadProxy(proxy.port);
    const { eventId } = await service.publish();
    // The second try shows that the first one ended, and that its delivery waits.
    await expect.poll(dead.tries, { timeout: 40_000 }).toBeGreaterThan(2);
    const trial = await service.webhooks.tryWebhookRequest({ webhookId, settings: {} });
    expect(trial).toMatchObject({
      accepted: false,
      error: expect.stringMatching(/^the outbound proxy is unavailable: /),
    });
    const { deliveries } = await service.deliveries.listDeliveries({ eventId });
    expect(deliveries).toMatchObject([{ attemptCount: 0 }]);
    expect(deliveries[0]?.finished).toBeUndefined();
    await dead.close();
    const back = await start({ credentials: `egress:${PASSWORD}`, port: proxy.port });
    worlds.set(scheme, { service, proxy: back });
    expect(await service.untilFinal(eventId)).toMatchObject([
      { state: DeliveryState.DELIVERED, attemptCount: 1 },
    ]);
    expect(receiver.received).toHaveLength(2);
    const { webhook } = await service.webhooks.getWebhook({ webhookId });
    expect(webhook?.health).toBe(WebhookHealth.HEALTHY);
    const { rows: failed } = await service.db.raw(
      "select from rollup_minutes where webhook_id = ? and failed_attempts > 0",
      [String(webhookId)],
    );
    expect(failed).toEqual([]);
  },
);

test("a retry that finds the proxy away keeps its attempts", async () => {
  const { service, proxy } = worlds.get("http") as World;
  onTestFinished(() => service.removeWebhooks());
  const away = Promise.withResolvers<Awaited<ReturnType<typeof deadProxy>>>();
  const receiver = await service.receiver(async ({ attempt }) => {
    if (attempt === 1) {
      await proxy.close();
      away.resolve(await deadProxy(proxy.port));
    }
    return 200;
  });
  await service.register(`${receiver.url}/orders`);
  const { eventId } = await service.publish();
  const dead = await away.promise;
  await expect.poll(dead.tries, { timeout: 40_000 }).toBeGreaterThan(2);
  await dead.close();
  worlds.set("http", {
    service,
    proxy: await startConnectProxy({ credentials: `egress:${PASSWORD}`, port: proxy.port }),
  });
  const [delivery] = await service.untilFinal(eventId);
  // The first attempt was sent, and lost its connection.
  expect(delivery).toMatchObject({ state: DeliveryState.DELIVERED, attemptCount: 2 });
});

test("private addresses are refused as without a proxy, and refused credentials reach no record", async () => {
  const { service, proxy } = worlds.get("http") as World;
  onTestFinished(() => service.removeWebhooks());
  const receiver = await service.receiver();
  await expect(service.register("https://10.0.0.1/orders")).rejects.toThrow(
    /10\.0\.0\.1 is a private address/,
  );
  const webhookId = await service.register(`${receiver.url}/orders`);
  // As if the rules had changed since the registration.
  await service
    .db("webhooks")
    .where("id", String(webhookId))
    .update({ target_url: "https://10.0.0.1/orders" });
  proxy.targets.length = 0;
  const [refused] = await service.untilFinal((await service.publish()).eventId);
  expect(refused).toMatchObject({
    state: DeliveryState.FAILED,
    attemptCount: 4,
    error: expect.stringContaining("address refused"),
  });
  expect(proxy.targets).toEqual([]);

  await proxy.close();
  const other = await startConnectProxy({ credentials: "egress:another", port: proxy.port });
  onTestFinished(() => other.close());
  const { error } = await service.webhooks.tryWebhookRequest({
    webhookId: await service.register(`${receiver.url}/other`),
    settings: {},
  });
  expect(error).toContain(
    "it demands other credentials (407); check the user and password of DELIVERY_PROXY",
  );
  const { rows } = await service.db.raw(
    "select concat((select json_agg(a) from attempts a), (select json_agg(d) from deliveries d)) as text",
  );
  expect(rows[0].text).toContain("address refused");
  expect(`${rows[0].text} ${error}`).not.toContain(PASSWORD);
});
