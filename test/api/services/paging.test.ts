import { once } from "node:events";
import { request } from "node:http";
import { text } from "node:stream/consumers";
import { expect, test } from "vitest";
import { ApiKeyService } from "../../../gen/webhook/v1/api_key_pb.ts";
import { StatsService } from "../../../gen/webhook/v1/stats_pb.ts";
import { WebhookHealth, WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import { failure } from "../../support/failure.ts";
import { storeDeliveries } from "../../support/stored-deliveries.ts";
import { useApi } from "../../support/test-api.ts";

const WEBHOOKS = 2_300;
/** Longer than all buffers between the service and a client that reads nothing. */
const LONG_PATH = "x".repeat(1_900);
const LONG_WEBHOOKS = 12_000;

const api = await useApi();
const webhooks = api.client(WebhookService);
const keys = api.client(ApiKeyService);
const stats = api.client(StatsService);
await api.register();
await addWebhooks(WEBHOOKS - 1, "hooks");
const storedIds = async (): Promise<bigint[]> =>
  (await api.context.db("webhooks").select("id").orderBy("id")).map(({ id }) => BigInt(id));
const ids = await storedIds();

/** Registers webhooks like the first one. */
async function addWebhooks(count: number, path: string): Promise<void> {
  await api.context.db.raw(
    `insert into webhooks (process, url, target_url, api_key_id, secret, created_revision)
      select process, address, address, api_key_id, secret, created_revision
      from (select * from webhooks order by id limit 1) w,
        lateral (select 'https://receiver.example/' || n || '/' || :path::text as address from generate_series(1, :count) n) a`,
    { path, count },
  );
}

/** The sizes of all pages, and the items in order. */
async function pagesOf<Item>(
  read: (pageToken: string) => Promise<{ items: Item[]; nextPageToken: string }>,
): Promise<{ sizes: number[]; items: Item[] }> {
  const sizes: number[] = [];
  const all: Item[] = [];
  let pageToken = "";
  do {
    const { items, nextPageToken } = await read(pageToken);
    sizes.push(items.length);
    all.push(...items);
    pageToken = nextPageToken;
  } while (pageToken !== "");
  return { sizes, items: all };
}

test.each([
  [0, [1_000, 1_000, 300]],
  [1_000, [1_000, 1_000, 300]],
  [575, [575, 575, 575, 575]],
])("webhooks are listed oldest first in pages, here of page_size %i", async (pageSize, expected) => {
  const { sizes, items } = await pagesOf(async (pageToken) => {
    const page = await webhooks.listWebhooks({ pageSize, pageToken });
    return { items: page.webhooks.map(({ id }) => id), nextPageToken: page.nextPageToken };
  });
  expect(sizes).toEqual(expected);
  expect(items).toEqual(ids);
});

test("a filter applies to every page, and webhooks that are deleted between pages move no others", async () => {
  const health = [WebhookHealth.HEALTHY];
  const first = await webhooks.listWebhooks({ health, pageSize: 10 });
  await webhooks.deleteWebhook({ webhookId: ids[3] as bigint });
  const second = await webhooks.listWebhooks({ health, pageSize: 10, pageToken: first.nextPageToken });
  expect(second.webhooks.map(({ id }) => id)).toEqual(ids.slice(10, 20));
  expect((await webhooks.listWebhooks({ health: [WebhookHealth.FAILING] })).nextPageToken).toBe("");
});

test("API keys and installed apps are listed oldest first in pages, also those made in the same microsecond", async () => {
  const { db } = api.context;
  const created = new Date();
  const made = (n: number) => ({ id: crypto.randomUUID(), name: `n${n}`, created });
  const apps = Array.from({ length: 25 }, (_, n) => made(n));
  await db("installed_apps").insert(apps);
  await db("api_keys").insert(
    Array.from({ length: 25 }, (_, n) => ({
      ...made(n),
      prefix: "whk_",
      secret_sha256: Buffer.alloc(32, n + 1),
      permissions: [1],
    })),
  );
  const inOrder = async (table: string) =>
    (await db(table).select("id").orderBy(["created", "id"])).map(({ id }) => id);
  const listedApps = await pagesOf(async (pageToken) => {
    const page = await keys.listInstalledApps({ pageSize: 10, pageToken });
    return { items: page.installedApps.map(({ id }) => id), nextPageToken: page.nextPageToken };
  });
  expect(listedApps).toEqual({ sizes: [10, 10, 5], items: await inOrder("installed_apps") });
  const listedKeys = await pagesOf(async (pageToken) => {
    const page = await keys.listApiKeys({ pageSize: 13, pageToken });
    return { items: page.apiKeys.map(({ id }) => id), nextPageToken: page.nextPageToken };
  });
  expect(listedKeys).toEqual({ sizes: [13, 13], items: await inOrder("api_keys") });
});

test("statistics come in pages of webhooks, or of named webhooks", async () => {
  const [first, middle, last] = [ids[0], ids[1_500], ids.at(-1)] as [bigint, bigint, bigint];
  await storeDeliveries(
    api.context.db,
    [first, middle, last].map((webhookId) => ({ webhookId, state: "failed", tried: [{ status: 500 }] })),
  );
  const { sizes, items } = await pagesOf(async (pageToken) => {
    const page = await stats.listWebhookStats({ pageToken });
    return { items: page.webhooks.map(({ webhookId }) => webhookId), nextPageToken: page.nextPageToken };
  });
  expect([sizes, items]).toEqual([
    [1, 1, 1],
    [first, middle, last],
  ]);
  const named = await stats.listWebhookStats({ webhookIds: [last, ids[7] as bigint, first] });
  expect(named.webhooks.map(({ webhookId, failed }) => [webhookId, failed])).toEqual([
    [first, 1n],
    [last, 1n],
  ]);
  const many = Array.from({ length: 1_001 }, (_, n) => BigInt(n + 1));
  const refused = await failure(stats.listWebhookStats({ webhookIds: many }));
  expect(refused?.rawMessage).toBe("webhook_ids has 1001 ids; at most 1000 are allowed");
});

test("sizes and tokens of pages that are none are refused, and cause no error of the service", async () => {
  const forged = ["x", "!", Buffer.from("99999999999999999999").toString("base64url")];
  forged.push(Buffer.from(`9999999999999999 ${crypto.randomUUID()}x`).toString("base64url"));
  for (const pageToken of forged) {
    for (const call of [
      () => webhooks.listWebhooks({ pageToken }),
      () => keys.listApiKeys({ pageToken }),
      () => keys.listInstalledApps({ pageToken }),
      () => stats.listWebhookStats({ pageToken }),
    ]) {
      expect((await failure(call()))?.rawMessage).toBe("page_token must be the next_page_token of a page");
    }
  }
  const far = Buffer.from(`9999999999999999 ${crypto.randomUUID()}`).toString("base64url");
  expect((await keys.listApiKeys({ pageToken: far })).apiKeys).toEqual([]);
  for (const pageSize of [-1, 1_001]) {
    expect((await failure(webhooks.listWebhooks({ pageSize })))?.rawMessage).toBe(
      "page_size must be from 1 to 1000",
    );
  }
});

test("§4.1: REST lists the webhooks of all pages in one answer, plain or compressed", async () => {
  const { envelope, headers } = await api.rest("GET", "/api/webhook/list");
  expect(envelope).toMatchObject({ Success: true, Warnings: [] });
  expect(headers.get("content-type")).toBe("application/json; charset=utf-8");
  expect(envelope.Data.map(({ Id }: { Id: number }) => BigInt(Id))).toEqual(
    ids.filter((id) => id !== ids[3]),
  );
  const plain = await fetch(`${api.url}/api/v2/webhook/list`, {
    headers: { "X-Service-Key": api.adminKey, "Accept-Encoding": "identity" },
  });
  expect(await plain.json()).toEqual(envelope);
  const head = await api.rest("HEAD", "/api/webhook/list");
  expect([head.status, head.text]).toEqual([200, ""]);
});

test("REST takes no parameters for pages", async () => {
  const query = { page_size: "1", pageSize: "1", page_token: "x", pageToken: "x" };
  const { status, envelope } = await api.rest("GET", "/api/webhook/list", { query });
  expect([status, envelope.Data.length]).toEqual([200, ids.length - 1]);
});

/** Asks for the list and reads its first bytes only. */
async function startReading(key = api.adminKey) {
  const asked = request(`${api.url}/api/webhook/list`, { headers: { "X-Service-Key": key } }).end();
  const [answer] = await once(asked, "response");
  await once(answer, "readable");
  return answer;
}

test("a long list is read from the database as the client takes it; an error amid it breaks the connection", async () => {
  await addWebhooks(LONG_WEBHOOKS, LONG_PATH);
  const all = await storedIds();
  const answer = await startReading();
  expect(answer.statusCode).toBe(200);
  await webhooks.deleteWebhook({ webhookId: all.at(-1) as bigint });
  const { Data: listed } = JSON.parse(await text(answer));
  expect(listed).toHaveLength(all.length - 2);
  expect(listed.at(-1).Id).toBe(Number(all.at(-2)));

  const broken = await startReading();
  const { db } = api.context;
  await db.raw("alter table webhooks rename column url to address");
  await expect(text(broken)).rejects.toThrow("aborted");
  await db.raw("alter table webhooks rename column address to url");
  expect((await api.rest("HEAD", "/api/webhook/list")).status).toBe(200);
});

test("a long list that is being read breaks off when its key is revoked", async () => {
  const { id, secret } = await api.key();
  const answer = await startReading(secret);
  await keys.revokeApiKey({ apiKeyId: id, webhooks: { case: "deleteWebhooks", value: {} } });
  await expect(text(answer)).rejects.toThrow("aborted");
});
