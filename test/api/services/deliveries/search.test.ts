import { randomUUID } from "node:crypto";
import { type Client, createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ApiKeyService } from "../../../../gen/webhook/v1/api_key_pb.ts";
import { DeliveryService, DeliveryState } from "../../../../gen/webhook/v1/delivery_pb.ts";
import { EventService } from "../../../../gen/webhook/v1/event_pb.ts";
import { rows } from "../../../../src/db/database.ts";
import { createInstalledApp } from "../../../../src/db/keys/installed-apps.ts";
import { grpc } from "../../../support/clients.ts";
import { failure } from "../../../support/failure.ts";
import { changeDelivery, storeDeliveries } from "../../../support/stored-deliveries.ts";
import { ONLY, startTestApi, type TestApi } from "../../../support/test-api.ts";

/** More than one search reads. */
const MANY = 1_100;

let api: TestApi;
let events: Client<typeof EventService>;
let deliveries: Client<typeof DeliveryService>;
/** Webhooks for orders: of no app at two hosts, and of an app. */
let shop: bigint;
let stock: bigint;
let ofApp: bigint;
let appKey: string;

beforeAll(async () => {
  api = await startTestApi();
  events = createClient(EventService, grpc(api));
  deliveries = createClient(DeliveryService, grpc(api));
  const app = await createInstalledApp(api.context.db, "app");
  appKey = (await api.key({ installedAppId: app.id })).secret;
  shop = await register("https://Shop.example/hooks/orders");
  stock = await register("https://stock.shop.example:8443/hooks");
  ofApp = await register("https://app.example/hooks", appKey);
});
afterAll(() => api.stop());

async function register(url: string, key = api.adminKey, process = 1): Promise<bigint> {
  const response = await fetch(`${api.url}/api/webhook`, {
    method: "POST",
    headers: { "X-Service-Key": key, "content-type": "application/json" },
    body: JSON.stringify({ process, url }),
  });
  return BigInt(((await response.json()) as { Data: { Id: number } }).Data.Id);
}

/** Publishes an order for all three webhooks. Returns the ids of the event and its deliveries. */
async function publish(
  more: {
    orderNumber?: string;
    trackingNumber?: string;
    userId?: string;
    key?: string;
  },
  publisher = events,
) {
  const { orderNumber = randomUUID(), userId = randomUUID(), key = randomUUID(), trackingNumber } = more;
  const { eventId } = await publisher.publishEvent({
    idempotencyKey: key,
    userId,
    data: {
      case: "orderDispatched",
      value: {
        orderId: 77_001n,
        orderNumber,
        dispatchedAt: { seconds: 1n },
        ...(trackingNumber ? { trackingNumber } : {}),
      },
    },
  });
  const found = await rows<{ id: string; webhookId: bigint }>(
    api.context.db,
    `select id, webhook_id as "webhookId" from queue where event_id = :eventId::uuid order by id desc`,
    { eventId },
  );
  const ids = found.map(({ id }) => id);
  return {
    eventId,
    ids,
    of: (webhook: bigint) => found.find(({ webhookId }) => webhookId === webhook)?.id ?? "",
  };
}

async function search(text: string, more: object = {}): Promise<string[]> {
  const found = await deliveries.listDeliveries({ search: text, ...more });
  return found.deliveries.map(({ id }) => id);
}

test("deliveries are found by what people know of the event: order number, tracking number, user, idempotency key", async () => {
  const wanted = await publish({
    orderNumber: "SO-10056",
    trackingNumber: "JD0146",
    userId: "tenant-42",
    key: "k-9",
  });
  await publish({ orderNumber: "SO-10057", trackingNumber: "JD0147", userId: "tenant-43", key: "k-10" });
  for (const text of ["SO-10056", "so-10056", " SO-10056 ", "jd0146", "tenant-42", "k-9"]) {
    expect(await search(text), text).toEqual(wanted.ids);
  }
  // Whole values are compared, and only those that the proto marks.
  for (const text of ["SO-1005", "O-10056", "tenant", "77001"]) expect(await search(text), text).toEqual([]);
  expect(await search("SO-10056", { webhookId: shop })).toEqual([wanted.of(shop)]);
  expect(await search("SO-10056", { states: [DeliveryState.FAILED] })).toEqual([]);
  expect(await search("SO-10056", { process: 2 })).toEqual([]);
  const hour = 3_600n;
  const now = BigInt(Math.floor(Date.now() / 1_000));
  expect(await search("SO-10056", { from: { seconds: now - hour } })).toEqual(wanted.ids);
  expect(await search("SO-10056", { to: { seconds: now - hour } })).toEqual([]);
});

test("deliveries are found by the ids of event, delivery and webhook, and by the webhook's host or URL", async () => {
  const wanted = await publish({});
  const [one = ""] = wanted.ids;
  expect(await search(wanted.eventId.toUpperCase())).toEqual(wanted.ids);
  expect(await search(one)).toEqual([one]);
  const newest = async (text: string) => (await search(text, { pageSize: 1 }))[0];
  for (const text of [
    String(shop),
    `#${shop}`,
    "shop.example",
    "SHOP.example",
    "https://shop.example",
    "shop.example/hooks",
  ]) {
    expect(await newest(text), text).toBe(wanted.of(shop));
  }
  for (const text of [
    "stock.shop.example",
    "stock.shop.example:8443",
    "https://stock.shop.example:8443/hooks",
  ]) {
    expect(await newest(text), text).toBe(wanted.of(stock));
  }
  const ofShop = await rows(api.context.db, "select id from queue where webhook_id = :shop::bigint", {
    shop,
  });
  expect(await search("shop.example")).toHaveLength(ofShop.length);
  for (const text of [
    "example",
    "hop.example",
    "stock.shop.example:444",
    "shop.example/other",
    "999999",
    "no such",
  ]) {
    expect(await search(text), text).toEqual([]);
  }
});

test("an e-mail address means a user, not the deliveries to its host", async () => {
  const wanted = await publish({ userId: "anna@shop.example" });
  const other = await publish({ userId: "@shop.example" });
  for (const id of [...wanted.ids, ...other.ids])
    await changeDelivery(api.context.db, id, { state: "failed", attempts: 4 });
  expect(await deliveries.sendAgainMany({ search: "anna@shop.example" })).toMatchObject({
    sentAgain: 3,
    nextPageToken: "",
  });
  expect(await search("anna@shop.example", { states: [DeliveryState.PENDING] })).toEqual(wanted.ids);
  expect(await search("@shop.example")).toEqual(other.ids);
});

test("a text with user info or a fragment is no URL; other URLs may contain @", async () => {
  for (const text of [
    "https://anna@shop.example",
    "https:\\\\anna:secret@shop.example/hooks",
    "//anna@shop.example",
    "https://shop.example/hooks#orders",
    "shop.example#",
  ]) {
    expect(await search(text), text).toEqual([]);
  }
  const webhookId = await register("https://at.example/@hooks", api.adminKey, 2);
  const ids = await storeDeliveries(api.context.db, [{ webhookId }]);
  expect(await search("https://at.example/@hooks")).toEqual(ids);
});

test("what one text means for several things is all found, newest first and each once", async () => {
  const first = await publish({ orderNumber: String(stock), userId: "both-1" });
  const second = await publish({ userId: String(stock) });
  const third = await publish({});
  const expected = [third.of(stock), ...second.ids, ...first.ids];
  const found = await search(String(stock));
  expect(found.slice(0, expected.length)).toEqual(expected);
  expect(new Set(found).size).toBe(found.length);
});

test("a key of an app finds the deliveries of its webhooks, and not by idempotency keys, which publishers choose", async () => {
  const wanted = await publish({ orderNumber: "SO-app", userId: "tenant-app", key: "key-app" });
  const own = createClient(DeliveryService, grpc(api, appKey));
  const found = async (text: string) =>
    (await own.listDeliveries({ search: text })).deliveries.map(({ id }) => id);
  for (const text of ["SO-app", "tenant-app", wanted.eventId, wanted.of(ofApp)]) {
    expect(await found(text), text).toEqual([wanted.of(ofApp)]);
  }
  expect(await found("app.example")).toContain(wanted.of(ofApp));
  for (const text of ["key-app", wanted.of(shop), "shop.example", String(shop)]) {
    expect(await found(text), text).toEqual([]);
  }
});

test("deliveries are found by the idempotency key of a publisher whose API key was deleted", async () => {
  const keys = createClient(ApiKeyService, grpc(api));
  const { id, secret } = await api.key({ permissions: ONLY.publish });
  const wanted = await publish({ key: "key-removed" }, createClient(EventService, grpc(api, secret)));
  await keys.revokeApiKey({ apiKeyId: id, webhooks: { case: "deleteWebhooks", value: {} } });
  await keys.deleteApiKey({ apiKeyId: id });
  expect(await search("key-removed")).toEqual(wanted.ids);
});

test("erased payloads are not found by their values, and still by their user", async () => {
  const wanted = await publish({ orderNumber: "SO-erased", userId: "tenant-erased" });
  const other = await publish({ orderNumber: "SO-erased", userId: "tenant-kept" });
  await events.erasePayloads({ userId: "tenant-erased" });
  expect(await search("SO-erased")).toEqual(other.ids);
  expect(await search("tenant-erased")).toEqual(wanted.ids);
});

test("without SEARCH_INDEX, no value of a payload is stored, and the rest is found", async () => {
  const { context } = api;
  const off = await startTestApi({ databaseUrl: api.databaseUrl, searchIndex: false });
  try {
    const { eventId } = await createClient(EventService, grpc(off)).publishEvent({
      idempotencyKey: "key-off",
      userId: "tenant-off",
      data: {
        case: "orderDispatched",
        value: { orderId: 1n, orderNumber: "SO-off", dispatchedAt: { seconds: 1n } },
      },
    });
    expect(
      await rows(context.db, "select 1 from search_terms where event_id = :eventId::uuid", { eventId }),
    ).toEqual([]);
    expect(await search("SO-off")).toEqual([]);
    for (const text of ["tenant-off", "key-off", eventId]) expect(await search(text), text).toHaveLength(3);
  } finally {
    await off.stop();
  }
});

test("events of one call are found each by its own values", async () => {
  const { results } = await events.publishEventBatch({
    events: ["batch-a", "batch-b", "batch-a"].map((orderNumber) => ({
      idempotencyKey: randomUUID(),
      userId: "tenant-batch",
      data: {
        case: "orderDispatched" as const,
        value: { orderId: 1n, orderNumber, dispatchedAt: { seconds: 1n } },
      },
    })),
  });
  const ids = results.map(({ result }) => (result.case === "published" ? result.value.eventId : ""));
  const found = await deliveries.listDeliveries({ search: "batch-a" });
  expect(new Set(found.deliveries.map(({ eventId }) => eventId))).toEqual(new Set([ids[0], ids[2]]));
});

test("all deliveries that a search finds are sent again, and no other", async () => {
  const wanted = await publish({ orderNumber: "SO-again" });
  const other = await publish({ orderNumber: "SO-other" });
  for (const id of [...wanted.ids, ...other.ids])
    await changeDelivery(api.context.db, id, { state: "failed", attempts: 4 });
  expect(await deliveries.sendAgainMany({ search: "so-again" })).toMatchObject({
    sentAgain: 3,
    nextPageToken: "",
  });
  expect(await search("SO-again", { states: [DeliveryState.PENDING] })).toEqual(wanted.ids);
  expect(await search("SO-other", { states: [DeliveryState.PENDING] })).toEqual([]);
});

test("a search that is too long is refused with its limit", async () => {
  const refused = await failure(deliveries.listDeliveries({ search: "x".repeat(301) }));
  expect(refused?.rawMessage).toContain("search must have at most 300 characters");
});

describe("a search that many events match", () => {
  /** The ids of the deliveries to one webhook, newest first. */
  let ids: string[];
  beforeAll(async () => {
    const made = await rows<{ id: string }>(
      api.context.db,
      `with event as (
          insert into events (id, api_key_id, idempotency_key, process, user_id, occurred, recipients, payload)
          select new_event_id(), gen_random_uuid(), n, 1, 'tenant-many', now(), 1, '{}' from generate_series(1, :many::int) n
          returning id
        )
        insert into queue (id, event_id, webhook_id) select new_delivery_id(id), id, :shop::bigint from event returning id`,
      { many: MANY, shop },
    );
    ids = made.map(({ id }) => id).sort((a, b) => (a < b ? 1 : -1));
  });

  test("is paged to the older and back, without gaps and repeats", async () => {
    const down: string[] = [];
    let pageToken = "";
    let newer = "";
    for (let pages = 0; pages < 20; pages += 1) {
      const page = await deliveries.listDeliveries({ search: "tenant-many", pageSize: 300, pageToken });
      down.push(...page.deliveries.map(({ id }) => id));
      newer = page.previousPageToken;
      pageToken = page.nextPageToken;
      if (pageToken === "") break;
    }
    expect(down).toEqual(ids);
    const up: string[] = [];
    for (let pages = 0; newer !== "" && pages < 20; pages += 1) {
      const page = await deliveries.listDeliveries({
        search: "tenant-many",
        pageSize: 300,
        pageToken: newer,
      });
      up.unshift(...page.deliveries.map(({ id }) => id));
      newer = page.previousPageToken;
    }
    expect(up).toEqual(ids.slice(0, up.length));
    expect(up.length).toBeGreaterThanOrEqual(900);
  });

  test("and few deliveries of them, says how far it searched and continues there", async () => {
    const oldest = ids.at(-1) as string;
    await changeDelivery(api.context.db, oldest, { state: "failed", attempts: 4 });
    const filter = { search: "tenant-many", states: [DeliveryState.FAILED] };
    const first = await deliveries.listDeliveries(filter);
    expect(first.deliveries).toEqual([]);
    expect(first.searchedBackTo).toBeDefined();
    const second = await deliveries.listDeliveries({ ...filter, pageToken: first.nextPageToken });
    expect(second.deliveries.map(({ id }) => id)).toEqual([oldest]);
    expect(second.nextPageToken).toBe("");
  });
});
