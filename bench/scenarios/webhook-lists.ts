import { createClient } from "@connectrpc/connect";
import { WebhookOrder, WebhookService } from "../../gen/webhook/v1/webhook_pb.ts";
import type { Measurement, Scenario } from "../parts/scenario.ts";
import { countWebhooks } from "../parts/seeding.ts";
import { openStage, type Stage } from "../parts/stage.ts";
import { figuresOf, type Kind, transportTo } from "../parts/timed-calls.ts";

const CALLS = 40;
const PAGE_SIZE = 50;
/** The webhooks whose number is a multiple of this have a name. */
const NAMED = 10;

/** The latency of the list of webhooks and of searches in it. */
export const webhookLists: Scenario = {
  name: "webhook-lists",
  what: "pages of and searches among many webhooks, over HTTP: median and slowest call",
  count: { full: 100_000, small: 20_000 },
  targets: Object.fromEntries(
    ["first page", "deep page", "least healthy", "common word", "rare words", "nothing"].map((name) => [
      `${name} max`,
      { atMost: 500 },
    ]),
  ),
  comparisons: [],
  async measure(bench, count) {
    await using stage = await openStage(bench, { MAX_WEBHOOKS: "10000000" });
    await seed(stage, count);
    const measured: Measurement[] = [];
    for (const kind of await kindsOf(stage, count)) {
      bench.stopping.throwIfAborted();
      measured.push(...(await figuresOf(kind, CALLS, { p50: 0.5, max: 1 })));
    }
    return measured;
  },
};

async function seed({ db }: Stage, count: number): Promise<void> {
  await db.raw(
    `insert into webhooks (process, url, target_url, api_key_id, secret, name)
      select 1 + n % 3, url, url, gen_random_uuid(), '\\x00', case when n % :named::int = 0 then 'Orders of shop ' || n end
      from generate_series(1, :count::int) n,
        lateral (select 'https://hooks.customer-' || n || '.example/v1/webhooks/' || md5(n::text) as url) u`,
    { count, named: NAMED },
  );
  await db.raw(
    `insert into webhook_health (webhook_id, health, since, last_failure)
      select id, case when id % 2 = 0 then 'failing' else 'degraded' end, now(), now() from webhooks where id % 20 < 2`,
  );
  await countWebhooks(db);
  await db.raw("vacuum (analyze) webhooks, webhook_health");
}

async function kindsOf(stage: Stage, count: number): Promise<Kind[]> {
  const client = createClient(WebhookService, transportTo(stage));
  const { webhooks } = await client.searchWebhooks({ pageSize: 1, order: WebhookOrder.OLDEST });
  const first = Number(webhooks[0]?.id);
  const page = { pageSize: PAGE_SIZE };
  /** A token deep in the list, made by the pages that lead there. */
  let pageToken = "";
  for (let n = 0; n < Math.min(100, count / 400); n += 1)
    ({ nextPageToken: pageToken } = await client.searchWebhooks({ pageSize: 200, pageToken }));
  const found = async (search: string, expected: number) => {
    const answer = await client.searchWebhooks({ ...page, search });
    if (answer.found !== expected) throw new Error(`${search}: found ${answer.found} instead of ${expected}`);
  };
  const one = (n: number) => NAMED * (1 + ((n * 7) % Math.floor(count / NAMED)));
  return [
    { name: "first page", call: () => client.searchWebhooks(page) },
    { name: "deep page", call: () => client.searchWebhooks({ ...page, pageToken }) },
    {
      name: "least healthy",
      call: () => client.searchWebhooks({ ...page, order: WebhookOrder.LEAST_HEALTHY }),
    },
    { name: "common word", call: () => found("shop", Math.min(10_000, Math.floor(count / NAMED))) },
    { name: "rare words", call: (n) => found(`orders .customer-${one(n)}.`, 1) },
    { name: "webhook id", call: (n) => client.searchWebhooks({ ...page, search: String(first + one(n)) }) },
    { name: "nothing", call: () => found("nowhere", 0) },
  ];
}
