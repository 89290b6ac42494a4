import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { beforeAll, expect, test } from "vitest";
import { DeliveryService } from "../../../gen/webhook/v1/delivery_pb.ts";
import {
  type SearchWebhooksRequestSchema,
  WebhookHealth,
  WebhookOrder,
  WebhookState,
} from "../../../gen/webhook/v1/webhook_pb.ts";
import { aWebhook } from "../../support/builders.ts";
import { useApi } from "../../support/test-api.ts";

type Search = MessageInitShape<typeof SearchWebhooksRequestSchema>;

const api = await useApi();
/** The ids of the webhooks by their names. */
const ids = new Map<string, bigint>();
let endpointId: string;

beforeAll(async () => {
  const { db } = api.context;
  const [app] = await db("installed_apps")
    .insert({ id: "01a1fcb1-a29f-730e-bb2b-5a149b950abd", name: "Warehouse link" })
    .returning("id");
  const { rows } = await db.raw("insert into endpoints default values returning id");
  endpointId = rows[0].id;
  const make = async (name: string, url: string, columns: Record<string, unknown> = {}) =>
    void ids.set(
      name,
      await aWebhook({ name, ...columns })
        .at(url)
        .in(db),
    );
  await make("shop", "https://shop.example/hooks/orders");
  await make("stock", "https://shop.example/hooks/stock", { process: 3, installed_app_id: app?.id });
  await make("paused", "https://other.example/a_b", { paused: new Date() });
  await make("failing", "https://failing.example/", { endpoint_id: endpointId });
  await make("degraded", "https://failing.example/", { process: 2, endpoint_id: endpointId });
  await make("open", "https://open.example/", { paused: new Date() });
  const health = (name: string, value: string) =>
    db.raw("insert into webhook_health (webhook_id, health, last_failure) values (?, ?, now())", [
      String(ids.get(name)),
      value,
    ]);
  await health("failing", "failing");
  await health("degraded", "degraded");
  await db.raw(
    `insert into webhook_breakers (webhook_id, max_failures, failing_s, probe_s, disable_s, disable_on_gone, resend, state)
      values (?, 10, 1800, 60, 432000, false, false, 'open')`,
    [String(ids.get("open"))],
  );
});

const namesOf = (webhooks: readonly { name?: string | undefined }[]) => webhooks.map(({ name }) => name);

async function found(request: Search) {
  const { webhooks, found: count } = await api.webhooks.searchWebhooks(request);
  expect(count).toBe(webhooks.length);
  return namesOf(webhooks);
}

test.each<[string, Search, string[]]>([
  ["nothing", {}, ["open", "degraded", "failing", "paused", "stock", "shop"]],
  ["a part of a URL, ignoring case", { search: "HOOKS/orders" }, ["shop"]],
  ["several words, all of which are there", { search: "shop.example stock" }, ["stock"]],
  ["words without those that join them", { search: "stock of the shop.example" }, ["stock"]],
  ["a word that joins others, alone", { search: "of" }, []],
  ["a word that stands for itself, whatever LIKE makes of it", { search: "a_b" }, ["paused"]],
  ["no webhook", { search: "a%b" }, []],
  ["a part of an event type's name", { search: "stocklevel" }, ["stock"]],
  ["the name of an app", { search: "warehouse" }, ["stock"]],
  ["a health", { health: [WebhookHealth.FAILING] }, ["failing"]],
  ["webhooks that are healthy", { health: [WebhookHealth.HEALTHY] }, ["open", "paused", "stock", "shop"]],
  ["paused ones", { states: [WebhookState.PAUSED] }, ["paused"]],
  ["those that a circuit breaker holds back", { states: [WebhookState.CIRCUIT_OPEN] }, ["open"]],
  ["an event type", { process: 2 }, ["degraded"]],
  ["an app", { installedApplicationId: "01a1fcb1-a29f-730e-bb2b-5a149b950abd" }, ["stock"]],
  ["webhooks without an app", { installedApplicationId: "", search: "shop" }, ["shop"]],
  ["the oldest first", { order: WebhookOrder.OLDEST, search: "shop" }, ["shop", "stock"]],
  [
    "the least healthy first",
    { order: WebhookOrder.LEAST_HEALTHY },
    ["failing", "degraded", "open", "paused", "stock", "shop"],
  ],
])("a search finds by %s", async (_, request, names) => {
  expect(await found(request)).toEqual(names);
});

test("a search finds a webhook by its id, and those of an endpoint by its id, with their event types", async () => {
  expect(await found({ search: String(ids.get("shop")) })).toContain("shop");
  const { webhooks, endpoints } = await api.webhooks.searchWebhooks({ search: endpointId });
  expect(namesOf(webhooks)).toEqual(["degraded", "failing"]);
  expect(endpoints).toMatchObject([{ id: endpointId, processNames: ["OrderDispatched", "DocumentCreated"] }]);
});

test("a key of an app is not told of the event types of an endpoint that it may not subscribe to", async () => {
  const { db } = api.context;
  const installedAppId = await api.app();
  await db("webhooks").where({ endpoint_id: endpointId }).update({ installed_app_id: installedAppId });
  const typesFor = async (allowedProcesses: number[]) => {
    const { secret } = await api.key({ installedAppId, allowedProcesses });
    const { webhooks, endpoints } = await api.as(secret).webhooks.searchWebhooks({ search: endpointId });
    return [webhooks.length, endpoints.map(({ processNames }) => processNames)];
  };
  expect(await typesFor([])).toEqual([2, [["OrderDispatched", "DocumentCreated"]]]);
  expect(await typesFor([1])).toEqual([1, []]);
  await db("webhooks").where({ endpoint_id: endpointId }).update({ installed_app_id: null });
});

test.each([WebhookOrder.UNSPECIFIED, WebhookOrder.OLDEST, WebhookOrder.LEAST_HEALTHY])(
  "pages in order %i have every webhook once, and each the number of all",
  async (order) => {
    const { webhooks: all } = await api.webhooks.searchWebhooks({ order });
    const paged: (string | undefined)[] = [];
    let pageToken = "";
    do {
      const page = await api.webhooks.searchWebhooks({ order, pageSize: 2, pageToken });
      expect(page.found).toBe(all.length);
      paged.push(...namesOf(page.webhooks));
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
    expect(paged).toEqual(namesOf(all));
  },
);

test.each<[string, Search]>([
  ["search", { search: "x".repeat(301) }],
  ["search", { search: "a b c d e f g h i j k l" }],
  ["order", { order: 9 as WebhookOrder }],
  ["states", { states: [9 as WebhookState] }],
  ["health", { health: [9 as WebhookHealth] }],
  ["installed_application_id", { installedApplicationId: "shop" }],
  ["api_key_id", { apiKeyId: "shop" }],
  ["page_size", { pageSize: 201 }],
  ["page_token", { pageToken: "x" }],
])("an invalid %s is refused by name", async (field, request) => {
  const error = await api.webhooks
    .searchWebhooks(request)
    .catch((cause: unknown) => ConnectError.from(cause));
  expect(error).toMatchObject({ code: Code.InvalidArgument });
  expect((error as ConnectError).rawMessage).toContain(field);
});

test("a search finds those of the operator alone and those of a key, whose names their deliveries have", async () => {
  const { id: apiKeyId, secret } = await api.key({ customer: "tenant-7" });
  const webhookId = await aWebhook({ name: "of tenant-7", customer: "tenant-7" })
    .ownedBy(apiKeyId)
    .having({ state: "delivered" })
    .in(api.context.db);
  expect(await found({})).toContain("of tenant-7");
  expect(await found({ withoutCustomer: true })).not.toContain("of tenant-7");
  expect(await found({ apiKeyId })).toEqual(["of tenant-7"]);
  // The customer's own key finds them nevertheless.
  const own = await api.as(secret).webhooks.searchWebhooks({ withoutCustomer: true });
  expect(namesOf(own.webhooks)).toEqual(["of tenant-7"]);
  const { deliveries } = await api.client(DeliveryService).listDeliveries({ webhookId });
  expect(deliveries.map(({ webhookName }) => webhookName)).toEqual(["of tenant-7"]);
  const { delivery } = await api.client(DeliveryService).getDelivery({ deliveryId: deliveries[0]?.id ?? "" });
  expect(delivery?.webhookName).toBe("of tenant-7");
});
