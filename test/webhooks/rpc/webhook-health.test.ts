import { expect, test } from "vitest";
import { WebhookHealth } from "../../../gen/webhook/v1/webhook_pb.ts";
import { foldDeltas } from "../../../src/maintenance/fold.ts";
import { storeDeliveries } from "../../support/stored-deliveries.ts";
import { useApi } from "../../support/test-api.ts";

const { HEALTHY, DEGRADED, FAILING, UNSPECIFIED } = WebhookHealth;

const api = await useApi();
const { db } = api.context;
const ofApp = await api.key({ installedAppId: await api.app() });
const { webhooks } = api;
const healthy = await api.register();
const degraded = await api.register({ key: ofApp.secret });
const failing = await api.register();
const tried = [{ status: 503 }];
const since = new Date(Date.now() - 5_000);
await storeDeliveries(db, [
  { webhookId: healthy, state: "delivered", tried: [{ status: 200 }] },
  { webhookId: degraded, state: "delivered", tried: [{ status: 200 }] },
  { webhookId: degraded, state: "retrying", tried },
  { webhookId: failing, state: "retrying", tried: [{ error: "connection refused", started: since }] },
  { webhookId: failing, state: "retrying", tried },
]);
await foldDeltas(db);

const listed = async (health: WebhookHealth[] = [], client = webhooks) =>
  (await client.listWebhooks({ health })).webhooks.map((webhook) => [webhook.id, webhook.health]);

test("a webhook has its health, the last error and since when attempts fail", async () => {
  const get = async (webhookId: bigint) => (await webhooks.getWebhook({ webhookId })).webhook;
  const error = { lastError: "HTTP status 503" };
  expect(await get(failing)).toMatchObject({ health: FAILING, ...error, failingSince: expect.anything() });
  expect(await get(degraded)).toMatchObject({ health: DEGRADED, ...error });
  const well = await get(healthy);
  expect([well?.health, well?.failingSince, well?.lastError]).toEqual([HEALTHY, undefined, undefined]);
  const { webhook: paused } = await webhooks.pauseWebhook({ webhookId: failing });
  expect(paused).toMatchObject({ health: FAILING, ...error, paused: expect.anything() });
  await webhooks.resumeWebhook({ webhookId: failing });
});

test("the list has each webhook's health and is narrowed by it; a key of an app knows that of its app's webhooks", async () => {
  const all = [
    [healthy, HEALTHY],
    [degraded, DEGRADED],
    [failing, FAILING],
  ];
  expect(await listed()).toEqual(all);
  const filters: WebhookHealth[][] = [[FAILING], [HEALTHY], [HEALTHY, DEGRADED], [DEGRADED, FAILING]];
  for (const asked of filters)
    expect(await listed(asked)).toEqual(all.filter(([, health]) => asked.includes(health as WebhookHealth)));
  const { webhooks: client, stats } = api.as(ofApp.secret);
  expect((await listed([], client)).map(([, health]) => health)).toEqual([
    UNSPECIFIED,
    DEGRADED,
    UNSPECIFIED,
  ]);
  for (const health of [HEALTHY, FAILING]) expect(await listed([health], client)).toEqual([]);
  expect(await listed([DEGRADED, FAILING], client)).toEqual([[degraded, DEGRADED]]);
  const { overview } = await stats.getOverview({});
  expect(overview).toMatchObject({ healthyWebhooks: 0n, degradedWebhooks: 1n, failingWebhooks: 0n });
});

test("the overview counts webhooks by health, and attempts that failed though all will be retried", async () => {
  const { stats } = api;
  const { overview } = await stats.getOverview({});
  expect(overview).toMatchObject({ healthyWebhooks: 1n, degradedWebhooks: 1n, failingWebhooks: 1n });
  expect(overview).toMatchObject({ attemptsLastDay: 5n, failedAttemptsLastDay: 3n, failed: 0n });
  const { buckets } = await stats.getHistory({ buckets: 24 });
  expect(buckets.at(-1)).toMatchObject({ attempts: 5n, failedAttempts: 3n, delivered: 2n, failed: 0n });
  const { webhooks: each } = await stats.listWebhookStats({});
  expect(each.find(({ webhookId }) => webhookId === failing)).toMatchObject({ failedAttempts: 2n });
  const { periods } = await stats.getWebhookStats({ webhookId: degraded });
  expect(periods.map(({ failedAttempts }) => failedAttempts)).toEqual([1n, 1n, 1n]);
});
