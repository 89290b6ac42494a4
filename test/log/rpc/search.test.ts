import { randomUUID } from "node:crypto";
import { expect, onTestFinished, test } from "vitest";
import { DeliveryState } from "../../../gen/webhook/v1/delivery_pb.ts";
import { rows } from "../../../src/lib/pg/database.ts";
import { anOrder } from "../../support/grpc-calls.ts";
import { pagesOf } from "../../support/pages.ts";
import { changeDelivery, type Stored, storeDeliveries } from "../../support/stored-deliveries.ts";
import { ONLY, startTestApi, useApi } from "../../support/test-api.ts";

/** More than one search reads. */
const MANY = 1_100;

const api = await useApi();
const { db } = api.context;
const { events, deliveries } = api;
const appKey = (await api.key({ installedAppId: await api.app() })).secret;
/** Webhooks for orders: of no app at two hosts, and of an app. */
const shop = await api.register({ url: "https://Shop.example/hooks/orders" });
const stock = await api.register({ url: "https://stock.shop.example:8443/hooks" });
const ofApp = await api.register({ url: "https://app.example/hooks", key: appKey });

/** Publishes an order for all three webhooks. Returns the ids of the event and its deliveries. */
async function publish(
  more: { orderNumber?: string; trackingNumber?: string; userId?: string; key?: string },
  publisher = events,
) {
  const { userId = randomUUID(), key: idempotencyKey = randomUUID(), ...values } = more;
  const order = { orderId: 77_001n, orderNumber: randomUUID(), ...values };
  const { eventId } = await publisher.publishEvent(anOrder(order, { userId, idempotencyKey }));
  const found = await db("queue").where({ event_id: eventId }).orderBy("id", "desc");
  const ids: string[] = found.map(({ id }) => id);
  const of = (webhook: bigint) => found.find((each) => each.webhook_id === webhook)?.id as string;
  return { eventId, ids, of };
}

async function search(text: string, more: object = {}, client = deliveries): Promise<string[]> {
  const found = await client.listDeliveries({ search: text, ...more });
  return found.deliveries.map(({ id }) => id);
}

const fail = async (ids: readonly string[]) => {
  for (const id of ids) await changeDelivery(db, id, { state: "failed", attempts: 4 });
};

test("deliveries are found by what people know of the event: order number, tracking number, user, idempotency key", async () => {
  const known = { orderNumber: "SO-10056", trackingNumber: "JD0146", userId: "tenant-42", key: "k-9" };
  const wanted = await publish(known);
  await publish({ orderNumber: "SO-10057", trackingNumber: "JD0147", userId: "tenant-43", key: "k-10" });
  for (const text of ["SO-10056", "so-10056", " SO-10056 ", "jd0146", "tenant-42", "k-9"])
    expect(await search(text), text).toEqual(wanted.ids);
  // Whole values are compared, and only those that the proto marks.
  for (const text of ["SO-1005", "O-10056", "tenant", "77001"]) expect(await search(text), text).toEqual([]);
  expect(await search("SO-10056", { webhookId: shop })).toEqual([wanted.of(shop)]);
  expect(await search("SO-10056", { states: [DeliveryState.FAILED] })).toEqual([]);
  expect(await search("SO-10056", { process: 2 })).toEqual([]);
  const anHourAgo = { seconds: BigInt(Math.floor(Date.now() / 1_000) - 3_600) };
  expect(await search("SO-10056", { from: anHourAgo })).toEqual(wanted.ids);
  expect(await search("SO-10056", { to: anHourAgo })).toEqual([]);
});

test("deliveries are found by the ids of event, delivery and webhook, and by the webhook's host or URL", async () => {
  const wanted = await publish({});
  const [one = ""] = wanted.ids;
  expect(await search(wanted.eventId.toUpperCase())).toEqual(wanted.ids);
  expect(await search(one)).toEqual([one]);
  const ofShop = [
    ...[String(shop), `#${shop}`, "shop.example", "SHOP.example"],
    ...["https://shop.example", "shop.example/hooks"],
  ];
  const ofStock = ["stock.shop.example", "stock.shop.example:8443", "https://stock.shop.example:8443/hooks"];
  for (const [webhook, texts] of [
    [shop, ofShop],
    [stock, ofStock],
  ] as const) {
    const { deliveries: found } = await deliveries.listDeliveries({ webhookId: webhook });
    for (const text of texts) expect(await search(text), text).toEqual(found.map(({ id }) => id));
  }
  for (const text of [
    ...["example", "hop.example", "stock.shop.example:444", "shop.example/other", "999999", "no such"],
    // Texts with user info or a fragment are no URLs.
    ...["https://anna@shop.example", "https:\\\\anna:secret@shop.example/hooks", "//anna@shop.example"],
    ...["https://shop.example/hooks#orders", "shop.example#"],
  ])
    expect(await search(text), text).toEqual([]);
  const webhookId = await api.register({ url: "https://at.example/@hooks", process: 2 });
  const ids = await storeDeliveries(db, [{ webhookId }]);
  expect(await search("https://at.example/@hooks")).toEqual(ids);
});

test("an e-mail address means a user, not the deliveries to its host", async () => {
  const wanted = await publish({ userId: "anna@shop.example" });
  const other = await publish({ userId: "@shop.example" });
  await fail([...wanted.ids, ...other.ids]);
  const sent = await deliveries.sendAgainMany({ search: "anna@shop.example" });
  expect(sent).toMatchObject({ sentAgain: 3, nextPageToken: "" });
  expect(await search("anna@shop.example", { states: [DeliveryState.PENDING] })).toEqual(wanted.ids);
  expect(await search("@shop.example")).toEqual(other.ids);
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

test("each word of a text selects, whatever it means, and names of webhooks are found by a part", async () => {
  const named = await api.register({ url: "https://berlin.example/in", process: 2 });
  await api.webhooks.updateWebhook({ webhookId: named, name: "Bücher Berlin" });
  const [ofName = ""] = await storeDeliveries(db, [{ webhookId: named }]);
  const wanted = await publish({ orderNumber: "SO-20001", userId: "tenant-7", key: "word-1" });
  const sameUser = await publish({ orderNumber: "SO-20002", userId: "tenant-7", key: "word-2" });
  const spaced = await publish({ orderNumber: "SO-20003", trackingNumber: "JD 20001" });
  for (const [text, expected] of [
    ["SO-20001 tenant-7", wanted.ids],
    ["SO-20001 of tenant-7", wanted.ids],
    ["the order of SO-20001", []],
    ["SO-20001 FOR the tenant-7", wanted.ids],
    ["of SO-20001", wanted.ids],
    ["to", []],
    ["tenant-7   so-20001", wanted.ids],
    ["tenant-7 word-2", sameUser.ids],
    [`tenant-7 ${wanted.eventId}`, wanted.ids],
    [`${wanted.of(shop)} SO-20001 tenant-7`, [wanted.of(shop)]],
    [`tenant-7 #${stock}`, [sameUser.of(stock), wanted.of(stock)]],
    ["tenant-7 stock.shop.example SO-20001", [wanted.of(stock)]],
    ["https://shop.example/hooks word-1", [wanted.of(shop)]],
    ["jd 20001", spaced.ids],
    ["bücher", [ofName]],
    ["berlin BÜCH", [ofName]],
    ["berlin tenant-7", []],
    ["SO-20001 tenant-8", []],
    ["b", []],
    // Longer texts are compared as a whole.
    ["SO-20001 tenant-7 word-1 tenant-7. x y", []],
  ] as const)
    expect(await search(text), text).toEqual(expected);
  expect(await search("tenant-7 SO-20001", {}, api.as(appKey).deliveries)).toEqual([wanted.of(ofApp)]);
  expect(await search("tenant-7 word-1", {}, api.as(appKey).deliveries)).toEqual([]);
  expect(await search("berlin", {}, api.as(appKey).deliveries)).toEqual([]);
});

test("deliveries are found by the start of their latest error, alone and among those that a text finds", async () => {
  const webhookId = await api.register({ url: "https://errors.example/in", process: 2 });
  const [refused, busy] = [{ error: "Connection refused; start it (ECONNREFUSED)" }, { status: 503 }];
  const retryAfter = { status: 503, error: "Retry-After: 120 s" };
  const stored: Omit<Stored, "webhookId">[] = [
    { state: "retrying", tried: [busy, refused] },
    { state: "retrying", tried: [refused, busy] },
    { state: "failed", tried: [refused, busy] },
    { state: "delivered", tried: [busy, { status: 200 }] },
    { state: "failed", tried: [busy], endedUntried: true, reason: "expired" },
    { state: "retrying", tried: [retryAfter] },
  ];
  const [again, retried, failedOnce, mended, expired, other] = await storeDeliveries(
    db,
    stored.map((each, n) => ({ ...each, webhookId, created: new Date(Date.now() - n * 1_000) })),
  );
  const { CANCELLED, DELIVERED, FAILED } = DeliveryState;
  for (const [text, expected, more] of [
    ["error:connection refused", [again]],
    ["error: Connection refused; start it (ECONNREFUSED)", [again]],
    ["error:http 503", [retried, failedOnce, other]],
    ["error:HTTP 503", [failedOnce], { states: [FAILED] }],
    ["error:HTTP 50", [retried, failedOnce, other]],
    ["error:expired", [expired]],
    ["error:retry-after", []],
    ["errors.example error:HTTP 503", [retried, failedOnce, other]],
    [`${again} error:HTTP 503`, []],
    [`#${webhookId} errors.example error:HTTP 503`, [retried, failedOnce, other]],
    ["shop.example error:HTTP 503", []],
    ["error:HTTP 200", []],
    ["error:HTTP 200", [mended], { states: [DELIVERED] }],
    ["error:HTTP 503", [], { states: [CANCELLED] }],
    ["terror:HTTP 503", []],
    ["error:", []],
  ] as const)
    expect(await search(text, { webhookId, ...more }), text).toEqual(expected);
  const { reasons } = await deliveries.listFailureReasons({ webhookId, search: "error:connection" });
  expect(reasons).toMatchObject([{ reason: refused.error, count: 1 }]);
  const sent = await deliveries.sendAgainMany({ webhookId, search: "error:HTTP 503" });
  expect(sent).toMatchObject({ sentAgain: 1, nextPageToken: "" });
  expect(await search("error:HTTP 503", { webhookId, states: [FAILED] })).toEqual([]);
});

test("a key of an app finds the deliveries of its webhooks, and not by idempotency keys, which publishers choose", async () => {
  const wanted = await publish({ orderNumber: "SO-app", userId: "tenant-app", key: "key-app" });
  const found = (text: string) => search(text, {}, api.as(appKey).deliveries);
  for (const text of ["SO-app", "tenant-app", wanted.eventId, wanted.of(ofApp)])
    expect(await found(text), text).toEqual([wanted.of(ofApp)]);
  expect(await found("app.example")).toContain(wanted.of(ofApp));
  for (const text of ["key-app", wanted.of(shop), "shop.example", String(shop)])
    expect(await found(text), text).toEqual([]);
});

test("an idempotency key is found after its API key was deleted; an erased payload by its user, not by its values", async () => {
  const { id, secret } = await api.key({ permissions: ONLY.publish });
  const erased = { orderNumber: "SO-erased", userId: "tenant-erased", key: "key-removed" };
  const wanted = await publish(erased, api.as(secret).events);
  const other = await publish({ orderNumber: "SO-erased", userId: "tenant-kept" });
  await api.revoke(id);
  await api.keys.deleteApiKey({ apiKeyId: id });
  await events.erasePayloads({ userId: "tenant-erased" });
  expect(await search("SO-erased")).toEqual(other.ids);
  for (const text of ["tenant-erased", "key-removed"]) expect(await search(text), text).toEqual(wanted.ids);
});

test("without SEARCH_INDEX, no value of a payload is stored, and the rest is found", async () => {
  const off = await startTestApi({ databaseUrl: api.databaseUrl, searchIndex: false });
  onTestFinished(() => off.stop());
  const more = { orderNumber: "SO-off", userId: "tenant-off", key: "key-off" };
  const { eventId, ids } = await publish(more, off.events);
  expect(await db("search_terms").where({ event_id: eventId })).toEqual([]);
  expect(await search("SO-off")).toEqual([]);
  for (const text of ["tenant-off", "key-off", eventId]) expect(await search(text), text).toEqual(ids);
});

test("events of one call are found each by its own values", async () => {
  const numbers = ["batch-a", "batch-b", "batch-a"];
  const { results } = await events.publishEventBatch({
    events: numbers.map((orderNumber) => anOrder({ orderNumber })),
  });
  const ids = results.map(({ result }) => (result.case === "published" ? result.value.eventId : ""));
  const found = await deliveries.listDeliveries({ search: "batch-a" });
  expect(new Set(found.deliveries.map(({ eventId }) => eventId))).toEqual(new Set([ids[0], ids[2]]));
});

test("a search that many events match is paged to the older and back, and continues where it has ended early", async () => {
  const made = await rows<{ id: string }>(
    db,
    `with event as (
        insert into events (id, api_key_id, idempotency_key, process, user_id, occurred, recipients, payload)
        select new_event_id(), gen_random_uuid(), 'many-' || n, 1, 'tenant-many', now(), 1, '{}'
        from generate_series(1, :many::int) n
        returning id, api_key_id, idempotency_key
      ),
      used as (
        insert into idempotency_keys (api_key_id, idempotency_key, event_id, request_sha256)
        select api_key_id, idempotency_key, id, '' from event
      )
      insert into queue (id, event_id, webhook_id) select new_delivery_id(id), id, :shop::bigint from event returning id`,
    { many: MANY, shop },
  );
  const ids = made
    .map(({ id }) => id)
    .sort()
    .reverse();
  const read = (pageToken: string) =>
    deliveries.listDeliveries({ search: "tenant-many", pageSize: 300, pageToken });
  const idsOf = (pages: Awaited<ReturnType<typeof read>>[]) =>
    pages.flatMap((page) => page.deliveries.map(({ id }) => id));
  const down = await pagesOf(read);
  expect(idsOf(down)).toEqual(ids);
  const up = await pagesOf(read, down.at(-1)?.previousPageToken, "previousPageToken");
  expect(idsOf(up.reverse())).toEqual(idsOf(down.slice(0, -1)));
  expect(idsOf(up).length).toBeGreaterThanOrEqual(900);

  const oldest = ids.at(-1) as string;
  // A rare word finds what is older than the thousand newest events of a frequent one.
  const [{ key } = { key: "" }] = await rows<{ key: string }>(
    db,
    "select idempotency_key as key from events where id = (select event_id from queue where id = :oldest::uuid)",
    { oldest },
  );
  for (const text of [`tenant-many ${key}`, `${key} tenant-many shop.example`]) {
    const found = await deliveries.listDeliveries({ search: text });
    expect([found.deliveries.map(({ id }) => id), found.searchedBackTo]).toEqual([[oldest], undefined]);
  }
  await fail([oldest]);
  const filter = { search: "tenant-many", states: [DeliveryState.FAILED] };
  const pages = await pagesOf((pageToken) => deliveries.listDeliveries({ ...filter, pageToken }));
  const ended = pages.map((page) => [page.deliveries.length, page.searchedBackTo !== undefined]);
  expect(ended).toEqual([
    [0, true],
    [1, false],
  ]);
  expect(idsOf(pages)).toEqual([oldest]);
});
