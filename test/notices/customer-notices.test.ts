import { expect, test } from "vitest";
import { rows } from "../../src/lib/pg/database.ts";
import { noticeHealth } from "../../src/notices/notices.ts";
import { type PlanNode, plansOf } from "../schema/explained.ts";
import { DELIVERY_FAILED, useNotices, WEBHOOK_FAILING } from "./notice-parts.ts";

const { db, key, app, register, publish, attemptAll, failRetries, notices, admin } = await useNotices();

const OWNERS = ["operator", "app", "acme", "acme's app", "globex", "globex's app"] as const;
type Owner = (typeof OWNERS)[number];

/** A key of each owner: the app is the same one. */
async function keys(): Promise<[Owner, string][]> {
  const shared = await app();
  return [
    ["operator", admin()],
    ["app", await key(shared)],
    ["acme", await key(undefined, [], "acme")],
    ["acme's app", await key(shared, [], "acme")],
    ["globex", await key(undefined, [], "globex")],
    ["globex's app", await key(shared, [], "globex")],
  ];
}

/** Has an event of each customer, and one of another user, fail at once wherever it is delivered. */
async function failForAll(): Promise<void> {
  for (const userId of ["tenant-7", "acme", "globex"]) await publish(admin(), 1, 1, userId);
  await attemptAll(503);
}

/** Which owners' webhooks receive notices about which, and the user of these. */
const RECEIVERS: Record<Owner, [Owner[], string]> = {
  operator: [["operator"], "service"],
  app: [["operator", "app"], "service"],
  acme: [["operator", "acme"], "acme"],
  "acme's app": [["operator", "acme", "acme's app"], "acme"],
  globex: [["operator", "globex"], "globex"],
  "globex's app": [["operator", "globex", "globex's app"], "globex"],
};

test("a notice about a customer's webhook reaches the operator and that customer, as an event of the customer's; one about the operator's no customer", async () => {
  const ownerOf = new Map<bigint, Owner>();
  for (const [owner, apiKeyId] of await keys())
    for (const process of [1, WEBHOOK_FAILING]) ownerOf.set(await register(apiKeyId, process), owner);
  await failForAll();
  const found = (await notices()).map(({ payload, userId, webhooks }) => [
    ownerOf.get(BigInt(payload.Webhook.Id)),
    [webhooks.map((id) => ownerOf.get(id)), userId],
  ]);
  expect(Object.fromEntries(found)).toEqual(RECEIVERS);
  expect(found).toHaveLength(OWNERS.length);
});

test("a customer's subscriber receives no notice about event types that its key may not subscribe to", async () => {
  const wide = await key(undefined, [], "acme");
  const narrow = await register(await key(undefined, [3, WEBHOOK_FAILING], "acme"), WEBHOOK_FAILING);
  await register(wide);
  await register(wide, 3);
  for (const process of [1, 3]) await publish(admin(), 1, process, "acme");
  await attemptAll(503);
  expect(
    (await notices()).map(({ payload, webhooks }) => [payload.Webhook.WebhookProcess, webhooks]),
  ).toEqual([["StockLevelChanged", [narrow]]]);
});

test("if only a customer subscribes, failed deliveries of its webhooks are noticed, and nothing else is stored", async () => {
  const apiKeyId = await key(undefined, [], "acme");
  const own = await register(apiKeyId);
  const subscriber = await register(apiKeyId, DELIVERY_FAILED);
  await register(admin());
  await register(await key(undefined, [], "globex"));
  await publish(admin(), 2, 1, "acme");
  await attemptAll(503);
  await failRetries();
  const found = (await notices()).map(({ payload, userId, webhooks }) => [
    BigInt(payload.Webhook.Id),
    userId,
    webhooks,
  ]);
  expect(found).toEqual(Array(2).fill([own, "acme", [subscriber]]));
});

test("a notice says of which customer it is in no field: without customers, no byte changes", async () => {
  await register(await key(undefined, [], "acme"));
  await register(admin(), WEBHOOK_FAILING);
  await publish(admin(), 1, 1, "acme");
  await attemptAll(503);
  const names = ["Id", "Name", "WebhookProcess", "Url", "Host", "Application"];
  expect((await notices()).map(({ payload }) => Object.keys(payload.Webhook))).toEqual([names]);
});

/** The indexes by which a plan reads webhooks that may receive something. */
function readsOfReceivers(node: PlanNode & { Alias?: string; "Index Name"?: string }): string[] {
  const isRead = node["Relation Name"] === "webhooks" && node.Alias?.startsWith("r");
  const own = isRead ? [node["Index Name"] ?? node["Node Type"]] : [];
  return [...own, ...(node.Plans ?? []).flatMap(readsOfReceivers)];
}

test.each([true, false])(
  "with 20,000 customers that subscribe, receivers are found by customer; statistics known: %s",
  async (analyzed) => {
    const apiKeyId = await key(undefined, [], "acme");
    const about = await register(apiKeyId);
    await register(apiKeyId, WEBHOOK_FAILING);
    await register(admin(), WEBHOOK_FAILING);
    await db.raw(
      `insert into webhooks (process, url, target_url, api_key_id, customer, secret)
      select p, 'https://c.example/' || n, 'https://c.example/' || n, ?, 'customer-' || n, '\\x00'
      from generate_series(1, 20000) n, unnest(array[1, ?::int]) p`,
      [apiKeyId, WEBHOOK_FAILING],
    );
    if (analyzed) await db.raw("analyze webhooks");
    const [now] = await rows<{ now: Date }>(db, "select now()");
    const since = now?.now as Date;
    const change = {
      webhookId: about,
      targetUrl: "https://c.example/",
      was: "healthy",
      health: "failing",
      since,
      wasSince: since,
      lastError: "HTTP status 503",
      name: null,
      application: null,
      customer: null,
    } as const;
    const plans = await plansOf(db, (trx) => noticeHealth(trx, [change]));
    const byIndex = [expect.stringMatching(/^webhooks_operator/), "webhooks_customer"];
    expect(plans.map(readsOfReceivers)).toEqual([byIndex, byIndex, []]);
  },
);
