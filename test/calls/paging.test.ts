import { once } from "node:events";
import { request } from "node:http";
import { text } from "node:stream/consumers";
import { Code } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { WebhookHealth } from "../../gen/webhook/v1/webhook_pb.ts";
import { pagesOf } from "../support/pages.ts";
import { expectRefused } from "../support/refusals.ts";
import { storeDeliveries } from "../support/stored-deliveries.ts";
import { useApi } from "../support/test-api.ts";

const WEBHOOKS = 2_300;
/** Longer than all buffers between the service and a client that reads nothing. */
const LONG_PATH = "x".repeat(1_900);
const LONG_WEBHOOKS = 9_000;

const api = await useApi();
const { webhooks, keys, stats } = api;
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

/** The sizes of all pages, and the ids of what is listed, in order. */
async function listed<Page extends { nextPageToken: string }>(
  read: (pageToken: string) => Promise<Page>,
  idsIn: (page: Page) => unknown[],
) {
  const pages = (await pagesOf(read)).map(idsIn);
  return [pages.map(({ length }) => length), pages.flat()];
}

test.each([
  [0, [1_000, 1_000, 300]],
  [1_000, [1_000, 1_000, 300]],
  [575, [575, 575, 575, 575]],
])("webhooks are listed oldest first in pages, here of page_size %i", async (pageSize, sizes) => {
  const found = await listed(
    (pageToken) => webhooks.listWebhooks({ pageSize, pageToken }),
    (page) => page.webhooks.map(({ id }) => id),
  );
  expect(found).toEqual([sizes, ids]);
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
  const inOrder = (table: string) => db(table).orderBy(["created", "id"]).pluck("id");
  const foundApps = await listed(
    (pageToken) => keys.listInstalledApps({ pageSize: 10, pageToken }),
    (page) => page.installedApps.map(({ id }) => id),
  );
  const foundKeys = await listed(
    (pageToken) => keys.listApiKeys({ pageSize: 13, pageToken }),
    (page) => page.apiKeys.map(({ id }) => id),
  );
  expect([foundApps, foundKeys]).toEqual([
    [[10, 10, 5], await inOrder("installed_apps")],
    [[13, 13], await inOrder("api_keys")],
  ]);
});

test("statistics come in pages of webhooks, or of named webhooks", async () => {
  const [first, middle, last] = [ids[0], ids[1_500], ids.at(-1)] as [bigint, bigint, bigint];
  await storeDeliveries(
    api.context.db,
    [first, middle, last].map((webhookId) => ({ webhookId, state: "failed", tried: [{ status: 500 }] })),
  );
  const found = await listed(
    (pageToken) => stats.listWebhookStats({ pageToken }),
    (page) => page.webhooks.map(({ webhookId }) => webhookId),
  );
  expect(found).toEqual([
    [1, 1, 1],
    [first, middle, last],
  ]);
  const named = await stats.listWebhookStats({ webhookIds: [last, ids[7] as bigint, first] });
  expect(named.webhooks.map(({ webhookId, failed }) => [webhookId, failed])).toEqual([
    [first, 1n],
    [last, 1n],
  ]);
});

test.each([
  ["webhooks", (pageToken: string) => webhooks.listWebhooks({ pageToken })],
  ["API keys", (pageToken: string) => keys.listApiKeys({ pageToken })],
  ["installed apps", (pageToken: string) => keys.listInstalledApps({ pageToken })],
  ["statistics", (pageToken: string) => stats.listWebhookStats({ pageToken })],
])("forged tokens of pages of %s are refused, and cause no error of the service", async (_, list) => {
  const message = "page_token must be the next_page_token of a page";
  const forged = ["99999999999999999999", `9999999999999999 ${crypto.randomUUID()}x`];
  for (const token of ["!", ...forged.map((text) => Buffer.from(text).toString("base64url"))])
    await expectRefused(list(token), Code.InvalidArgument, message);
  const farFuture = Buffer.from(`9999999999999999 ${crypto.randomUUID()}`).toString("base64url");
  expect((await keys.listApiKeys({ pageToken: farFuture })).apiKeys).toEqual([]);
});

test("§4.1: REST lists the webhooks of all pages in one answer, plain or compressed", async () => {
  // Parameters of pages are unknown, and ignored.
  const query = { page_size: "1", pageSize: "1", page_token: "x", pageToken: "x" };
  const { envelope, headers } = await api.rest("GET", "/api/webhook/list", { query });
  expect(envelope).toMatchObject({ Success: true, Warnings: [] });
  expect(headers.get("content-type")).toBe("application/json; charset=utf-8");
  const expected = ids.filter((id) => id !== ids[3]);
  expect(envelope.Data.map(({ Id }: { Id: number }) => BigInt(Id))).toEqual(expected);
  const plain = await fetch(`${api.url}/api/v2/webhook/list`, {
    headers: { "X-Service-Key": api.adminKey, "Accept-Encoding": "identity" },
  });
  expect(await plain.json()).toEqual(envelope);
  const head = await api.rest("HEAD", "/api/webhook/list");
  expect([head.status, head.text]).toEqual([200, ""]);
});

/** Asks for the list and reads its first bytes only. */
async function startReading(key = api.adminKey) {
  const asked = request(`${api.url}/api/webhook/list`, { headers: { "X-Service-Key": key } }).end();
  const [answer] = await once(asked, "response");
  await once(answer, "readable");
  return answer;
}

test("a long list is read from the database as the client takes it; an error or its key's revocation breaks the connection", async () => {
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

  const { id, secret } = await api.key();
  const revoked = await startReading(secret);
  await api.revoke(id);
  await expect(text(revoked)).rejects.toThrow("aborted");
});
