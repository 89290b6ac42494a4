import { timestampDate } from "@bufbuild/protobuf/wkt";
import { Code } from "@connectrpc/connect";
import { beforeEach, expect, test } from "vitest";
import { StatsService } from "../../../../gen/webhook/v1/stats_pb.ts";
import { WebhookHealth, WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { foldDeltas } from "../../../../src/db/deliveries/rollups.ts";
import { createInstalledApp } from "../../../../src/db/keys/installed-apps.ts";
import { failure } from "../../../support/failure.ts";
import { storeDeliveries } from "../../../support/stored-deliveries.ts";
import { useApi } from "../../../support/test-api.ts";

const { HEALTHY, DEGRADED, FAILING, UNSPECIFIED } = WebhookHealth;

const api = await useApi();
let healthy: bigint;
let degraded: bigint;
let failing: bigint;
const webhooks = api.client(WebhookService);
beforeEach(async () => {
  const { db } = api.context;
  await db.raw(
    "truncate webhooks, webhook_health, rollup_deltas, rollup_minutes, retries, attempts, processes",
  );
  [healthy, degraded, failing] = [await api.register(), await api.register(), await api.register()];
  const tried = [{ status: 503, error: null }];
  const earlier = { error: "connection refused (ECONNREFUSED)", started: new Date(Date.now() - 5_000) };
  await storeDeliveries(db, [
    { webhookId: healthy, state: "delivered", tried: [{ status: 200 }] },
    { webhookId: degraded, state: "delivered", tried: [{ status: 200 }] },
    { webhookId: degraded, state: "retrying", tried },
    { webhookId: failing, state: "retrying", tried: [earlier] },
    { webhookId: failing, state: "retrying", tried },
  ]);
  await foldDeltas(db);
});

const listed = async (health: WebhookHealth[] = [], client = webhooks) =>
  (await client.listWebhooks({ health })).webhooks.map((webhook) => [webhook.id, webhook.health]);

test("a webhook has its health, the last error and since when attempts fail", async () => {
  const { webhook } = await webhooks.getWebhook({ webhookId: failing });
  expect(webhook).toMatchObject({ health: FAILING, lastError: "HTTP status 503" });
  const since = webhook?.failingSince;
  expect(Math.abs((since ? timestampDate(since).getTime() : 0) - Date.now())).toBeLessThan(60_000);
  expect((await webhooks.getWebhook({ webhookId: degraded })).webhook).toMatchObject({
    health: DEGRADED,
    lastError: "HTTP status 503",
  });
  const { webhook: well } = await webhooks.getWebhook({ webhookId: healthy });
  expect(well).toMatchObject({ health: HEALTHY });
  expect(well?.failingSince ?? well?.lastError).toBeUndefined();
});

test("the list has each webhook's health, and is narrowed by it", async () => {
  expect(await listed()).toEqual([
    [healthy, HEALTHY],
    [degraded, DEGRADED],
    [failing, FAILING],
  ]);
  expect(await listed([FAILING])).toEqual([[failing, FAILING]]);
  expect(await listed([HEALTHY])).toEqual([[healthy, HEALTHY]]);
  expect(await listed([HEALTHY, DEGRADED])).toHaveLength(2);
  expect(await listed([DEGRADED, FAILING])).toHaveLength(2);
});

test("a health that does not exist is refused", async () => {
  for (const wrong of [UNSPECIFIED, 99 as WebhookHealth]) {
    const refused = await failure(webhooks.listWebhooks({ health: [wrong] }));
    expect(refused?.code).toBe(Code.InvalidArgument);
    expect(refused?.message).toContain("3 (FAILING)");
  }
});

test("a paused webhook keeps its health", async () => {
  const { webhook } = await webhooks.pauseWebhook({ webhookId: failing });
  expect(webhook).toMatchObject({ health: FAILING, lastError: "HTTP status 503" });
  expect(webhook?.paused).toBeDefined();
});

test("the overview counts webhooks by health, and attempts that failed though all will be retried", async () => {
  const stats = api.client(StatsService);
  const { overview } = await stats.getOverview({});
  expect(overview).toMatchObject({
    healthyWebhooks: 1n,
    degradedWebhooks: 1n,
    failingWebhooks: 1n,
    attemptsLastDay: 5n,
    failedAttemptsLastDay: 3n,
    failed: 0n,
  });
  const { buckets } = await stats.getHistory({ buckets: 24 });
  expect(buckets.at(-1)).toMatchObject({ attempts: 5n, failedAttempts: 3n, delivered: 2n, failed: 0n });
  const { webhooks: each } = await stats.listWebhookStats({});
  expect(each.find(({ webhookId }) => webhookId === failing)).toMatchObject({ failedAttempts: 2n });
  const { periods } = await stats.getWebhookStats({ webhookId: degraded });
  expect(periods.map(({ failedAttempts }) => failedAttempts)).toEqual([1n, 1n, 1n]);
});

test("REST lists webhooks with the contract's fields and no more, and has no filter by health", async () => {
  const { envelope } = await api.rest("GET", "/api/webhook/list", { query: { health: "3" } });
  expect(envelope.Data).toHaveLength(3);
  const contract = ["Id", "Created", "Modified", "WebhookProcess", "Url", "Application"];
  for (const each of envelope.Data) expect(Object.keys(each)).toEqual(contract);
});

test("a key of an installed app sees the health of its app's webhooks alone, by a filter too", async () => {
  const { db } = api.context;
  const app = await createInstalledApp(db, "app");
  const { secret } = await api.key({ installedAppId: app.id });
  const client = api.client(WebhookService, secret);
  await db("webhooks").where("id", String(degraded)).update({ installed_app_id: app.id });
  expect(await listed([], client)).toEqual([
    [healthy, UNSPECIFIED],
    [degraded, DEGRADED],
    [failing, UNSPECIFIED],
  ]);
  for (const health of [HEALTHY, FAILING]) expect(await listed([health], client)).toEqual([]);
  expect(await listed([DEGRADED, FAILING], client)).toEqual([[degraded, DEGRADED]]);
  const { overview } = await api.client(StatsService, secret).getOverview({});
  expect(overview).toMatchObject({ healthyWebhooks: 0n, degradedWebhooks: 1n, failingWebhooks: 0n });
});
