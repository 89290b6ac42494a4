import { request } from "node:http";
import { beforeAll, expect, test } from "vitest";
import { countWebhooks, searchWebhooks } from "../../../src/webhooks/search.ts";
import { type PlanNode, plansOf } from "../../schema/explained.ts";
import { aWebhook } from "../../support/builders.ts";
import { useApi } from "../../support/test-api.ts";

const COUNT = 100_000;
const api = await useApi();
const { db } = api.context;

beforeAll(async () => {
  const id = await aWebhook({ name: "Orders of a customer" }).in(db);
  const columns = "process, api_key_id, secret, name";
  await db.raw(
    `insert into webhooks (${columns}, url, target_url)
      select ${columns}, u, u from webhooks, lateral (
        select 'https://hooks.customer-' || n || '.example/v1/webhooks/orders/' || md5(n::text) as u from generate_series(2, ${COUNT}) n
      ) urls where id = ?`,
    [String(id)],
  );
  // Each was tried in each of the last hours.
  await db.raw(
    `insert into rollup_hours (webhook_id, start, attempts, delivered, failed, cancelled, total_ms, longest_ms, latency)
      select w.id, date_trunc('hour', now()) - make_interval(hours => h), 1000 + w.id % 900 + h, 900 + h, w.id % 70, 0, 12345, 900, '{1,2,3}'
      from (select id from webhooks order by id desc limit 50) w, generate_series(0, 24) h`,
  );
  await db.raw("analyze");
});

/** The bytes of the answer to a call as browsers make it. */
function bytesOf(method: string, body: object): Promise<{ bytes: number; answer: string }> {
  const headers = {
    "Content-Type": "application/json",
    "Accept-Encoding": "gzip",
    "X-Service-Key": api.adminKey,
  };
  const { promise, resolve, reject } = Promise.withResolvers<{ bytes: number; answer: string }>();
  const call = request(`${api.url}/webhook.v1.${method}`, { method: "POST", headers }, async (response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of response) chunks.push(chunk);
    const bytes = Buffer.concat(chunks);
    if (response.statusCode === 200)
      resolve({ bytes: bytes.length, answer: response.headers["content-encoding"] ?? "" });
    else reject(new Error(`${method}: ${response.statusCode}`));
  });
  call.on("error", reject).end(JSON.stringify(body));
  return promise;
}

test(`the list of ${COUNT.toLocaleString()} webhooks takes 60 kB at most, the figures of its page included`, async () => {
  const { webhooks, found } = await api.webhooks.searchWebhooks({ withoutCustomer: true });
  expect([webhooks.length, found]).toEqual([50, 10_000]);
  const webhookIds = webhooks.map(({ id }) => String(id));
  const calls = [
    await bytesOf("WebhookService/SearchWebhooks", { withoutCustomer: true, pageSize: 50 }),
    await bytesOf("StatsService/ListWebhookStats", { webhookIds }),
    await bytesOf("StatsService/ListWebhookHistory", { webhookIds, hours: 24 }),
  ];
  expect(calls.reduce((sum, { bytes }) => sum + bytes, 0)).toBeLessThanOrEqual(60_000);
});

const nodesOf = (node: PlanNode): PlanNode[] => [node, ...(node.Plans ?? []).flatMap(nodesOf)];

test.each(["newest", "oldest"] as const)(
  "a page in the order %s reads the webhooks of the page alone, and at most 10,000 to count them",
  async (order) => {
    for (const withoutCustomer of [false, true]) {
      const search = { words: [], health: [], states: [], withoutCustomer };
      const plans = await plansOf(db, async (on) => {
        await searchWebhooks(on, "everything", search, order, { after: null, limit: 51 });
        await searchWebhooks(on, "everything", search, order, {
          after: { rank: 0, after: 50_000n },
          limit: 51,
        });
        await countWebhooks(on, "everything", search);
      });
      const [first, next, count] = plans.map(nodesOf);
      for (const nodes of [first, next]) {
        const read = nodes?.filter((node) => node["Relation Name"] === "webhooks");
        expect(
          read?.map((node) => node["Node Type"]),
          JSON.stringify(plans),
        ).not.toContain("Seq Scan");
      }
      expect(count?.some((node) => node["Node Type"] === "Limit" && (node["Plan Rows"] ?? 0) <= 10_000)).toBe(
        true,
      );
    }
  },
);
